package ipmi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// ErrDamaged says that what a controller keeps does not hold its checksum.
var ErrDamaged = errors.New("ipmi: its checksum does not hold")

// FRU is what a controller keeps of its machine (IPMI Platform Management FRU Information Storage
// Definition, v1.0 revision 1.3, sections 8 to 12); what it does not say is empty.
type FRU struct {
	Manufacturer, Product, Serial string
}

const (
	fruHeader = 8  // bytes of the header, and of which lengths and offsets are multiples
	fruPiece  = 16 // bytes that are read at a time: controllers may refuse more
)

// FRU reads the inventory of device 0, the machine itself. What the product area does not say is
// that of the chassis or the board. One that is not there is [ErrNoRecord]; of one that is damaged
// nothing is believed, which is [ErrDamaged].
func (c *Conn) FRU(ctx context.Context) (FRU, error) {
	var out FRU
	err := c.do(ctx, "read FRU inventory", func(cl *client.Client) error {
		info, err := cl.GetFRUInventoryAreaInfo(ctx, 0)
		if code, ok := completion(err); ok && code == types.CodeRequestDataFieldInvalid { // there is no device 0
			return nil
		}
		if err != nil {
			return err
		}
		out, err = parseFRU(int(info.AreaSizeBytes), func(what string, offset, length int) ([]byte, error) {
			b := make([]byte, 0, length)
			for len(b) < length {
				res, err := cl.ReadFRUData(ctx, 0, uint16(offset+len(b)), uint8(min(fruPiece, length-len(b)))) //nolint:gosec // within 64 KiB
				if err != nil {
					return nil, err
				}
				if len(res.Data) == 0 {
					return nil, fmt.Errorf("%s ends after %d of %d bytes", what, len(b), length)
				}
				b = append(b, res.Data...)
			}
			return b[:length], nil
		})
		return err
	})
	if err == nil && out == (FRU{}) {
		err = ErrNoRecord
	}
	if err != nil {
		return FRU{}, err
	}
	return out, nil
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
			out = FRU{text(p.ManufacturerTypeLength, p.Manufacturer), text(p.NameTypeLength, p.Name), text(p.SerialNumberTypeLength, p.SerialNumber)}
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
			return FRU{}, fmt.Errorf("%s: %w", what, err)
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
