package ipmi

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"
)

// SELInfo is the state of the event log (section 31.2).
type SELInfo struct {
	Entries  int
	Addition time.Time // most recent; the controller's clock
	Erase    time.Time // most recent, of one record or of all
	// EraseRaw is the erase time as the controller gave it, in seconds.
	EraseRaw uint32
	// Free is the room that is left, in bytes; 65,535 is that or more.
	Free int
	// Overflow says that records were dropped since there was no room.
	Overflow bool
	// Reserves says that the controller guards a clearing against records that come in between (section 31.4).
	Reserves bool
}

// Used is the share of the log that is taken, from 0 to 1.
func (i SELInfo) Used() float64 {
	const record = 16
	taken := i.Entries * record
	if taken == 0 {
		return 0
	}
	return float64(taken) / float64(taken+i.Free)
}

// SELInfo reads the state of the event log.
func (c *Conn) SELInfo(ctx context.Context) (SELInfo, error) {
	var out SELInfo
	err := c.do(ctx, "read SEL info", func(*client.Client) error {
		var r storage.GetSELInfoResponse
		err := c.exchange(ctx, controller, &storage.GetSELInfoRequest{}, &r)
		if err == nil {
			out = SELInfo{
				Entries: int(r.Entries), Addition: r.RecentAdditionTime.UTC(), Erase: r.RecentEraseTime.UTC(),
				EraseRaw: uint32(r.RecentEraseTime.Unix()), Free: int(r.FreeBytes),
				Overflow: r.OperationSupport.Overflow, Reserves: r.OperationSupport.ReserveSEL,
			}
		}
		return err
	})
	return out, err
}

// Record ids with a meaning (section 31.5).
const (
	FirstRecord uint16 = 0x0000
	LastRecord  uint16 = 0xffff
)

// SELRecord is an entry of the event log as it is on the wire (section 32).
type SELRecord struct {
	ID   uint16
	Next uint16 // LastRecord after the last one
	Raw  [16]byte
}

// SELRecord reads one entry; [FirstRecord] and [LastRecord] name the ends. A
// record that is not there is [ErrNoRecord]. One of the wrong length is
// [ErrMalformed], with what there is of it and the id of the next.
func (c *Conn) SELRecord(ctx context.Context, id uint16) (SELRecord, error) {
	var out SELRecord
	var length int
	err := c.do(ctx, fmt.Sprintf("read SEL record %#04x", id), func(*client.Client) error {
		var r storage.GetSELEntryResponse
		if err := c.exchange(ctx, controller, &storage.GetSELEntryRequest{RecordID: id, ReadBytes: 0xff}, &r); err != nil {
			return err
		}
		length = copy(out.Raw[:], r.Data)
		out.Next, out.ID = r.NextRecordID, binary.LittleEndian.Uint16(out.Raw[:])
		return nil
	})
	if err == nil && length == len(out.Raw) && (out.ID == FirstRecord || out.ID == LastRecord) {
		err = fmt.Errorf("%w: SEL record %#04x of %s calls itself %#04x, which is none", ErrMalformed, id, c.opt.Addr, out.ID)
	}
	if err == nil && length < len(out.Raw) {
		out.ID = id
		err = fmt.Errorf("%w: SEL record %#04x of %s has %d bytes instead of 16", ErrMalformed, id, c.opt.Addr, length)
	}
	return out, err
}

// SELTime reads the clock that stamps the event log (section 31.10).
func (c *Conn) SELTime(ctx context.Context) (time.Time, error) {
	var out time.Time
	err := c.do(ctx, "read SEL time", func(cl *client.Client) error {
		r, err := cl.GetSELTime(ctx)
		if err == nil {
			out = r.Time.UTC()
		}
		return err
	})
	return out, err
}

// codeReservation says that a reservation was lost (table 5-2).
const codeReservation types.CompletionCode = 0xc5

// ClearSEL erases the log (section 31.9) if check, which is asked under a reservation, says that all of it is known: a
// record that comes after that cancels the reservation (section 31.4), and nothing is erased.
func (c *Conn) ClearSEL(ctx context.Context, check func() (bool, error)) (cleared bool, err error) {
	var reservation uint16
	err = c.do(ctx, "reserve SEL", func(cl *client.Client) error {
		r, err := cl.ReserveSEL(ctx)
		if err == nil {
			reservation = r.ReservationID
		}
		return err
	})
	if err != nil {
		return false, err
	}
	if ok, err := check(); err != nil || !ok {
		return false, err
	}
	err = c.once(ctx, "clear SEL", func(cl *client.Client) error {
		_, err := cl.ClearSEL(ctx, reservation)
		if code, ok := completion(err); ok && code == codeReservation {
			return nil
		}
		cleared = err == nil
		return err
	})
	return cleared, err
}
