package ipmi

import "testing"

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
