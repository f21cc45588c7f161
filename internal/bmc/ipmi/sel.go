package ipmi

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
)

// SELInfo is the state of the event log (section 31.2).
type SELInfo struct {
	Entries  int
	Addition time.Time // most recent; the controller's clock
	Erase    time.Time // most recent; names the epoch of the record ids
	// EraseRaw is the erase time as the controller gave it, in seconds.
	EraseRaw uint32
}

// SELInfo reads the state of the event log.
func (c *Conn) SELInfo(ctx context.Context) (SELInfo, error) {
	var out SELInfo
	err := c.do(ctx, "read SEL info", func(cl *client.Client) error {
		r, err := cl.GetSELInfo(ctx)
		if err == nil {
			out = SELInfo{
				Entries: int(r.Entries), Addition: r.RecentAdditionTime.UTC(), Erase: r.RecentEraseTime.UTC(),
				EraseRaw: uint32(r.RecentEraseTime.Unix()),
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
	err := c.do(ctx, fmt.Sprintf("read SEL record %#04x", id), func(cl *client.Client) error {
		r, err := cl.GetSELEntry(ctx, 0, id)
		if err != nil {
			return err
		}
		length = copy(out.Raw[:], r.Data)
		out.Next, out.ID = r.NextRecordID, binary.LittleEndian.Uint16(out.Raw[:])
		return nil
	})
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
