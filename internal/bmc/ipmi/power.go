package ipmi

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/dcmi"
	"github.com/bougou/go-ipmi/pkg/types"
)

// Completion codes of DCMI 1.5, sections 6.6.2 and 6.6.3.
const (
	codeNoLimit    types.CompletionCode = 0x80 // none is active
	codeLimitRange types.CompletionCode = 0x84
	codeCorrection types.CompletionCode = 0x85
	codeSampling   types.CompletionCode = 0x89
)

// PowerLimit is what a server draws and may draw, in watts.
type PowerLimit struct {
	Draw  float64 // NaN where the controller does not measure
	Limit float64 // 0 is none

	asked dcmi.SetDCMIPowerLimitRequest // as a limit is set beside its watts
}

// How a limit is set where none was (DCMI 1.5, table 6-19): the controller has 6 s to bring the server below it, and where it cannot,
// nothing is switched off.
const (
	correctionTime = 6000 // milliseconds
	samplingPeriod = 1    // seconds
)

// PowerDraw reads what the server draws, in watts (DCMI 1.5, section 6.6.1); NaN where the controller does not measure.
func (c *Conn) PowerDraw(ctx context.Context) (watts float64, err error) {
	watts = math.NaN()
	err = c.do(ctx, "read power", func(cl *client.Client) error {
		r, err := cl.GetDCMIPowerReading(ctx)
		if err == nil && r.PowerMeasurementActive {
			watts = float64(r.CurrentPower)
		}
		return err
	})
	if errors.Is(err, ErrRefused) {
		err = nil
	}
	return watts, err
}

// PowerLimit reads what the server draws (DCMI 1.5, section 6.6.1) and its limit (section 6.6.2).
func (c *Conn) PowerLimit(ctx context.Context) (p PowerLimit, err error) {
	p = PowerLimit{asked: dcmi.SetDCMIPowerLimitRequest{CorrectionTimeLimitMilliSec: correctionTime, StatisticsSamplingPeriodSec: samplingPeriod}}
	if p.Draw, err = c.PowerDraw(ctx); err != nil {
		return p, err
	}
	err = c.do(ctx, "read power limit", func(cl *client.Client) error {
		r, err := cl.GetDCMIPowerLimit(ctx)
		if code, ok := completion(err); ok && code == codeNoLimit {
			return nil
		}
		if err != nil {
			return err
		}
		p.Limit = float64(r.PowerLimitRequested)
		p.asked = dcmi.SetDCMIPowerLimitRequest{
			ExceptionAction: r.ExceptionAction, CorrectionTimeLimitMilliSec: r.CorrectionTimeLimitMilliSec, StatisticsSamplingPeriodSec: r.StatisticsSamplingPeriodSec,
		}
		return nil
	})
	return p, err
}

// SetPowerLimit sets a limit and puts it in force (sections 6.6.3 and 6.6.4), each command once; 0 puts none in force. Who set one
// before said what happens where it is passed, and that stays so.
func (c *Conn) SetPowerLimit(ctx context.Context, at PowerLimit, watts float64) error {
	watts = math.Round(watts)
	if watts > math.MaxUint16 {
		return fmt.Errorf("%w: %g W is more than DCMI can say", ErrRefused, watts)
	}
	if watts > 0 {
		at.asked.PowerLimitRequested = uint16(watts)
		err := c.once(ctx, "set power limit", func(cl *client.Client) error {
			_, err := cl.SetDCMIPowerLimit(ctx, &at.asked)
			switch code, _ := completion(err); code {
			case codeLimitRange, codeCorrection, codeSampling:
				return fmt.Errorf("%w: %w", ErrRefused, err)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.once(ctx, "activate power limit", func(cl *client.Client) error {
		_, err := cl.ActivateDCMIPowerLimit(ctx, watts > 0)
		return err
	})
}
