package ipmi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"
)

// ErrDamaged says that what a controller keeps does not hold its checksum.
var ErrDamaged = errors.New("ipmi: its checksum does not hold")

// FRU is what a controller keeps of its machine (IPMI Platform Management FRU Information Storage
// Definition, v1.0 revision 1.3, sections 8 to 12); what it does not say is empty.
type FRU struct {
	Manufacturer, Product, Serial string
	Part                          string // the maker's number of the product, or of its board
}

const (
	fruHeader = 8  // bytes of the header, and of which lengths and offsets are multiples
	fruPiece  = 16 // bytes that are read at a time: controllers may refuse more
)

// FRU reads the inventory of device 0, the machine itself. What the product area does not say is
// that of the chassis or the board. One that is not there is [ErrNoRecord]; of one that is damaged
// nothing is believed, which is [ErrDamaged].
func (c *Conn) FRU(ctx context.Context) (FRU, error) { return c.FRUOf(ctx, 0) }

// FRUOf is [Conn.FRU] of another device that the controller keeps an inventory of ([FRUDevice]). What is refused is
// [ErrRefused]; after any of these three the session goes on.
func (c *Conn) FRUOf(ctx context.Context, device uint8) (FRU, error) {
	var out FRU
	var damaged error
	err := c.do(ctx, "read FRU inventory", func(cl *client.Client) error {
		info, err := cl.GetFRUInventoryAreaInfo(ctx, device)
		if code, ok := completion(err); ok && code == types.CodeRequestDataFieldInvalid { // there is no such device
			return nil
		}
		if err != nil {
			return err
		}
		var unread error
		out, damaged = parseFRU(int(info.AreaSizeBytes), func(what string, offset, length int) ([]byte, error) {
			b := make([]byte, 0, length)
			for len(b) < length {
				var res *storage.ReadFRUDataResponse
				res, unread = cl.ReadFRUData(ctx, device, uint16(offset+len(b)), uint8(min(fruPiece, length-len(b)))) //nolint:gosec // within 64 KiB
				if unread != nil {
					return nil, unread
				}
				if len(res.Data) == 0 {
					return nil, fmt.Errorf("%w: %s ends after %d of %d bytes", ErrDamaged, what, len(b), length)
				}
				b = append(b, res.Data...)
			}
			return b[:length], nil
		})
		return unread
	})
	switch _, answered := completion(err); {
	case answered && !errors.Is(err, ErrNoRecord) && !errors.Is(err, ErrRefused):
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	case err == nil && damaged != nil:
		err = fmt.Errorf("FRU inventory %d of %s: %w", device, c.opt.Addr, damaged)
	case err == nil && out == FRU{}:
		err = ErrNoRecord
	}
	if err != nil {
		return FRU{}, err
	}
	return out, nil
}

// FRUDevice is a part whose inventory a controller keeps (FRU device locator record, section 43.8).
type FRUDevice struct {
	ID       uint8 // for [Conn.FRUOf]
	Entity   uint8 // table 43-13
	Instance uint8 // of the entity
	Name     string
}

// Places in a FRU device locator record, its header included (table 43-7, less one).
const (
	fruLocator    = 0x11
	atAccess      = 5
	atFRUID       = 6
	atLogical     = 7
	atFRUEntity   = 12
	atFRUInstance = 13
	atFRUName     = 15
)

// ParseFRUDevices returns the parts in [Conn.SensorRecords] that the controller itself answers for, each once and without
// the machine.
func ParseFRUDevices(records []byte) (out []FRUDevice) {
	var seen [256]bool
	for raw := range each(records) {
		if len(raw) <= atFRUName || raw[3] != fruLocator || raw[atAccess]&0xfe != types.BMC_SA || raw[atLogical]&0x80 == 0 {
			continue
		}
		d := FRUDevice{ID: raw[atFRUID], Entity: raw[atFRUEntity], Instance: raw[atFRUInstance] & 0x7f}
		name := raw[atFRUName+1:]
		d.Name = clean([]byte(types.FRUFieldString(types.TypeLength(raw[atFRUName]), name[:min(len(name), int(raw[atFRUName]&0x1f))])))
		if d.ID == 0 || seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		out = append(out, d)
	}
	return out
}

// parseFRU takes an inventory of so many bytes apart. One that was never written is empty.
func parseFRU(size int, read func(what string, offset, length int) ([]byte, error)) (out FRU, err error) {
	h, err := read("the header", 0, fruHeader)
	if err != nil {
		return FRU{}, err
	}
	if !holds(h) || h[0]&0x0f != types.FRUFormatVersion {
		if same := bytes.Count(h, h[:1]) == len(h); same && (h[0] == 0 || h[0] == 0xff) { // never written
			return out, nil
		}
		return FRU{}, fmt.Errorf("the header of the FRU inventory: %w", ErrDamaged)
	}
	text := func(tl types.TypeLength, raw []byte) string {
		return strings.TrimSpace(clean([]byte(types.FRUFieldString(tl, raw))))
	}
	for _, a := range []struct {
		what string
		at   byte
		take func(b []byte) error
	}{
		{"product", h[4], func(b []byte) error {
			var p types.FRUProductInfoArea
			err := p.Unpack(b)
			out = FRU{
				text(p.ManufacturerTypeLength, p.Manufacturer), text(p.NameTypeLength, p.Name), text(p.SerialNumberTypeLength, p.SerialNumber),
				text(p.PartModelTypeLength, p.PartModel),
			}
			return err
		}},
		{"chassis", h[2], func(b []byte) error {
			var p types.FRUChassisInfoArea
			err := p.Unpack(b)
			out.Serial = cmp.Or(out.Serial, text(p.SerialNumberTypeLength, p.SerialNumber))
			return err
		}},
		{"board", h[3], func(b []byte) error {
			var p types.FRUBoardInfoArea
			err := p.Unpack(b)
			out.Manufacturer = cmp.Or(out.Manufacturer, text(p.ManufacturerTypeLength, p.Manufacturer))
			out.Product = cmp.Or(out.Product, text(p.ProductNameTypeLength, p.ProductName))
			out.Serial = cmp.Or(out.Serial, text(p.SerialNumberTypeLength, p.SerialNumber))
			out.Part = cmp.Or(out.Part, text(p.PartNumberTypeLength, p.PartNumber))
			return err
		}},
	} {
		at := int(a.at) * fruHeader
		if at == 0 || at >= size {
			continue
		}
		what := "the " + a.what + " area of the FRU inventory"
		b, err := read(what, at, fruHeader)
		if err == nil && int(b[1])*fruHeader > fruHeader {
			b, err = read(what, at, int(b[1])*fruHeader)
		}
		if err != nil {
			return FRU{}, err
		}
		if !holds(b) {
			return FRU{}, fmt.Errorf("%s: %w", what, ErrDamaged)
		}
		if err := a.take(b); err != nil {
			return FRU{}, fmt.Errorf("%s: %w: %w", what, ErrDamaged, err)
		}
	}
	return out, nil
}

// holds reports whether bytes with their checksum add up to nothing.
func holds(b []byte) bool {
	var sum byte
	for _, x := range b {
		sum += x
	}
	return sum == 0
}
