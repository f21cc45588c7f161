package ipmi

import (
	"cmp"
	"context"
	"strings"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// FRU is what a controller keeps of its machine (IPMI Platform Management FRU Information Storage
// Definition, v1.0 revision 1.3, sections 10 to 12); what it does not say is empty.
type FRU struct {
	Manufacturer, Product, Serial string
}

// FRU reads the inventory of device 0, the machine itself. What the product area does not say is
// that of the chassis or the board. One that is not there is [ErrNoRecord].
func (c *Conn) FRU(ctx context.Context) (FRU, error) {
	var out FRU
	err := c.do(ctx, "read FRU inventory", func(cl *client.Client) error {
		r, err := cl.GetFRU(ctx, 0, "")
		if err != nil {
			return err
		}
		text := func(tl types.TypeLength, raw []byte) string {
			return strings.TrimSpace(clean([]byte(types.FRUFieldString(tl, raw))))
		}
		if p := r.ProductInfoArea; p != nil {
			out = FRU{text(p.ManufacturerTypeLength, p.Manufacturer), text(p.NameTypeLength, p.Name), text(p.SerialNumberTypeLength, p.SerialNumber)}
		}
		if a := r.ChassisInfoArea; a != nil {
			out.Serial = cmp.Or(out.Serial, text(a.SerialNumberTypeLength, a.SerialNumber))
		}
		if b := r.BoardInfoArea; b != nil {
			out.Manufacturer = cmp.Or(out.Manufacturer, text(b.ManufacturerTypeLength, b.Manufacturer))
			out.Product = cmp.Or(out.Product, text(b.ProductNameTypeLength, b.ProductName))
			out.Serial = cmp.Or(out.Serial, text(b.SerialNumberTypeLength, b.SerialNumber))
		}
		return nil
	})
	if err == nil && out == (FRU{}) {
		err = ErrNoRecord
	}
	return out, err
}
