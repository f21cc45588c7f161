package ipmi

import (
	"bytes"
	"crypto/cipher"
	"fmt"
	"testing"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/dcmi"
	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"
)

// FuzzScreen hands any datagram to the screen in each state of a session: none may
// panic, and none without its code is let through.
func FuzzScreen(f *testing.F) {
	f.Add([]byte{6, 0, 0xff, 7, 6, 0xc0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}, byte(0))
	f.Add([]byte{6, 0, 0xff, 7, 6, 0x13, 0, 0, 0, 0, 0, 0, 0, 0, 40, 0}, byte(0x12))
	f.Add([]byte{}, byte(0x10))
	f.Fuzz(func(t *testing.T, d []byte, sent byte) {
		s := &screened{
			screen: screen{password: "secret", passed: &passed{}}, sent: sent & 0x3f, id: 1, agreed: algorithms{1, 1, 1},
			random: make([]byte, 16), key: make([]byte, 20),
		}
		if err := s.examine(d); err == nil && s.sent == payloadIPMI {
			t.Errorf("%x is believed", d)
		}
	})
}

// FuzzFRU reads an inventory of any bytes: it is whole, or refused.
func FuzzFRU(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0xfe, 1, 1, 25, 0xc1, 0, 0, 0, 0x24})
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, d []byte) {
		read := func(what string, offset, length int) ([]byte, error) {
			if offset+length > len(d) {
				return nil, fmt.Errorf("%s ends", what)
			}
			return d[offset : offset+length], nil
		}
		var out FRU
		err := contain(nil, func(*client.Client) (err error) {
			out, err = parseFRU(len(d), read)
			return err
		})
		for _, s := range []string{out.Manufacturer, out.Product, out.Serial} {
			if err == nil && s != clean([]byte(s)) {
				t.Errorf("%q", s)
			}
		}
	})
}

// FuzzDCMI unpacks any answer to Get Power Reading.
func FuzzDCMI(f *testing.F) {
	f.Add([]byte{0xdc, 0x2c, 1, 0x20, 1, 0x30, 1, 0x25, 1, 0, 0, 0, 0, 0xe8, 3, 0, 0, 0x40})
	f.Add([]byte{0xdc})
	f.Fuzz(func(t *testing.T, d []byte) {
		var r dcmi.GetDCMIPowerReadingResponse
		if err := contain(nil, func(*client.Client) error { return r.Unpack(d) }); err == nil && len(d) < 18 {
			t.Errorf("%x is a reading", d)
		}
	})
}

// FuzzSELRecord walks over any answer to Get SEL Entry.
func FuzzSELRecord(f *testing.F) {
	f.Add([]byte{2, 0, 1, 0, 2, 0, 0x65, 0x27, 0x6a, 0x20, 0, 4, 8, 0xc8, 0x6f, 3, 0xff, 0xff})
	f.Add([]byte{2})
	f.Fuzz(func(_ *testing.T, d []byte) {
		var r storage.GetSELEntryResponse
		_ = contain(nil, func(*client.Client) error { return r.Unpack(d) })
	})
}

// FuzzAnswer takes apart any payload with a code that is right: a controller may send what it wants.
func FuzzAnswer(f *testing.F) {
	f.Add(make([]byte, 32), byte(1))
	f.Add([]byte{0x81, 0x1c, 0x63, 0x20, 0x04, 0x01, 0x00, 0x61, 0, 0, 0, 0, 0, 0, 0, 7}, byte(1))
	f.Fuzz(func(t *testing.T, plain []byte, rq byte) {
		s := &screened{screen: screen{passed: &passed{}}, sent: payloadIPMI, id: 1, agreed: algorithms{1, 1, 1}, key: make([]byte, 20)}
		s.prepare(s.agreed, s.key, make([]byte, 20))
		s.rq = rq & 0x3f
		plain = plain[:len(plain)/16*16]
		payload := append(make([]byte, 16), plain...)
		cipher.NewCBCEncrypter(s.block, payload[:16]).CryptBlocks(payload[16:], plain)
		d := []byte{6, 0, 0xff, 7, 6, 0xc0, 1, 0, 0, 0, 1, 0, 0, 0, byte(len(payload)), byte(len(payload) >> 8)}
		d = append(append(d, payload...), 0xff, 0xff, 2, 7)
		d = append(d, s.sum(d[4:])...)
		if len(payload) > 0xffff {
			return
		}
		if err := s.examine(d); err != nil {
			t.Fatal(err)
		}
		data, _, err := s.unseal(d, types.Command{NetFn: 6, ID: 1})
		if err == nil && (len(plain) == 0 || len(data) > len(plain)) {
			t.Errorf("%x of %x", data, plain)
		}
	})
}
