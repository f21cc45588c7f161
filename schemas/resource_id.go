package schemas

import (
	"crypto/sha1"
	"encoding/hex"
)

// Space is the UUID name space (RFC 9562, section 5.5) of the resources of one
// site: inventories of different sites may use the same names.
type Space [16]byte

// spaces is the UUID of version 5 of "auspex.dev" in the name space of DNS names.
var spaces = Space{0x70, 0x26, 0xf8, 0x72, 0x44, 0x19, 0x5a, 0x26, 0x8e, 0xc2, 0x32, 0xf2, 0xe1, 0xc1, 0xa8, 0xca}

// SpaceOf returns the name space of a site; "" is a site without a name.
func SpaceOf(site string) Space { return Space(spaces.sum(site)) }

// ID returns the UUID of the resource with a name (formats, section 8): the same
// in every process and at every time, with nothing stored.
func (s Space) ID(name string) UUID { return s.sum(name) }

func (s Space) sum(name string) UUID {
	h := sha1.New()
	h.Write(s[:])
	h.Write([]byte(name))
	var u UUID
	copy(u[:], h.Sum(nil))
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return u
}

// UUID is a UUID in the order of its text.
type UUID [16]byte

// String writes the UUID in lower case with its four hyphens.
func (u UUID) String() string {
	text := make([]byte, 0, 36)
	from := 0
	for _, to := range [...]int{4, 6, 8, 10, 16} {
		if from > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, u[from:to])
		from = to
	}
	return string(text)
}
