package agent

import (
	"encoding/binary"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"auspex/internal/sim/fleet"
)

// diskFolder is the folder of a disk in the class of NVMe controllers, or among the block devices.
func diskFolder(d *fleet.MachineDisk, class string) string {
	if class == blocks && d.PCI != "" {
		return path.Join(class, d.Name+"n1")
	}
	return path.Join(class, d.Name)
}

// diskFile writes what a file of a disk holds.
func diskFile(v *fleet.Machine, name string) (string, bool) {
	for i := range v.Disks {
		d := &v.Disks[i]
		class := blocks
		if d.PCI != "" {
			class = nvmeClass
		}
		file, is := strings.CutPrefix(name, diskFolder(d, class)+"/")
		if !is || d.Gone {
			continue
		}
		text, ok := map[string]string{
			"state": "live", "model": d.Model, "serial": d.Serial, "firmware_rev": d.Firmware, "transport": "pcie", "temp1_input": "38000",
			"size": "1875385008", "device/state": "running", "device/vendor": "ATA", "device/model": d.Model, "device/rev": d.Firmware,
			"device/ioerr_cnt": "0x0", "device/iotmo_cnt": "0x0",
		}[file]
		return text, ok
	}
	return "", false
}

// disk finds one by its device.
func (m *machine) disk(device string) (fleet.MachineDisk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.look()
	for i := range v.Disks {
		if d := v.Disks[i]; d.Name == filepath.Base(device) && !d.Gone {
			return d, nil
		}
	}
	return fleet.MachineDisk{}, syscall.ENODEV
}

// NVMeHealth implements [host.Disks].
func (m *machine) NVMeHealth(device string, page *[512]byte) error {
	d, err := m.disk(device)
	if err != nil {
		return err
	}
	const littleSpare = 1
	if *page = [512]byte{3: byte(100 * d.Spare), 4: byte(100 * fleet.SpareThreshold), 5: byte(100 * d.Wear)}; d.Warns {
		page[0] = littleSpare
	}
	for at, v := range map[int]uint64{112: 41, 128: 9120, 144: 3, 160: d.MediaErrors, 176: d.MediaErrors} {
		binary.LittleEndian.PutUint64(page[at:], v)
	}
	return nil
}

// ATA implements [host.Disks]: IDENTIFY DEVICE, SMART READ DATA and SMART RETURN STATUS (ACS-3, sections 7.12 and 7.48).
func (m *machine) ATA(device string, command *[16]byte, data *[512]byte, sense *[64]byte) (int, error) {
	d, err := m.disk(device)
	if err != nil {
		return 0, err
	}
	switch {
	case command[14] == 0xec:
		*data = [512]byte{}
		swapped(data[20:40], d.Serial)
		swapped(data[54:94], d.Model)
		for _, word := range []struct{ at, value uint16 }{{82, 1}, {83, 1 << 14}, {85, 1}} {
			binary.LittleEndian.PutUint16(data[2*word.at:], word.value)
		}
	case command[4] == 0xd0:
		*data = [512]byte{}
		at := 2
		for id, raw := range map[byte]uint64{5: d.MediaErrors, 9: 9120, 12: 41, 187: d.MediaErrors, 194: 38, 197: d.MediaErrors % 8, 199: 0} {
			data[at] = id
			binary.LittleEndian.PutUint32(data[at+5:], uint32(raw))
			at += 12
		}
		sum := byte(0)
		for _, b := range data {
			sum += b
		}
		data[511] = -sum
	default:
		answer := []byte{0x72, 0, 0, 0, 0, 0, 0, 14, 9, 12, 0, 0, 0, 0, 0, 0, 0, 0x4f, 0, 0xc2, 0, 0}
		if d.Warns {
			answer[17], answer[19] = 0xf4, 0x2c
		}
		return copy(sense[:], answer), nil
	}
	return 0, nil
}

// swapped writes a text as ATA has it: padded, two characters a word, the second first.
func swapped(into []byte, text string) {
	for i := range into {
		into[i^1] = ' '
		if i < len(text) {
			into[i^1] = text[i]
		}
	}
}
