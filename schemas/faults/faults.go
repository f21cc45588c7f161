// Package faults holds what vendors' codes mean, as data: NVIDIA's XID and SXid
// catalogues, the rules that decode the NVLink 5 codes, the sensor and event
// tables of IPMI, and the message ids of Redfish. README.md names the sources.
package faults

import (
	"embed"
	"encoding/csv"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"auspex/schemas"
)

// Immediate actions of the XID catalogue, in the vendor's words.
const (
	ActionIgnore           = "IGNORE"
	ActionRestartApp       = "RESTART_APP"
	ActionResetGPU         = "RESET_GPU"
	ActionRestartVM        = "RESTART_VM"
	ActionRestartHost      = "RESTART_BM" // the bare-metal host
	ActionCheckMechanicals = "CHECK_MECHANICALS"
	ActionContactSupport   = "CONTACT_SUPPORT"
	ActionDrainP2P         = "DRAIN_P2P"
)

// XIDRecoveryAction is the code of the XID that carries the driver's own verdict.
const XIDRecoveryAction = 154

//go:embed data/*.csv
var files embed.FS

// XIDEntry is a row of the XID catalogue.
type XIDEntry struct {
	Code     int
	Mnemonic string // the driver's constant
	Meaning  string
	// Generations on which the code can appear.
	A100, H100, B100, GB200 bool
	Action                  string // immediate action, such as RESET_GPU or WORKFLOW_XID_48
	Investigate             string // what to do afterwards; may be empty
	AnnouncedSince          string // release from which XID 154 announces the action; may be empty
	Severity                schemas.Severity
	Used                    bool // false: reserved, not reported by current drivers
	Known                   bool // false: not in the catalogue
}

// SXIDEntry is a row of the SXid catalogue.
type SXIDEntry struct {
	Code     int
	Mnemonic string // without the prefix NVSWITCH_ERR_HW_
	Meaning  string
	Known    bool
}

type catalogue struct {
	xid     map[int]XIDEntry
	sxid    map[int]SXIDEntry
	nvlink  []nvlinkRule
	types   map[byte]string
	names   map[string]byte
	sel     map[selKey]SELEntry
	redfish map[string]RedfishEntry
}

// load parses the embedded files once. They are part of the program, so that a
// broken one is a defect that every test would meet.
var load = sync.OnceValue(func() *catalogue {
	c := &catalogue{
		xid: map[int]XIDEntry{}, sxid: map[int]SXIDEntry{}, types: map[byte]string{}, names: map[string]byte{},
		sel: map[selKey]SELEntry{}, redfish: map[string]RedfishEntry{},
	}
	if err := c.parse(files); err != nil {
		panic("faults: " + err.Error())
	}
	return c
})

func (c *catalogue) parse(fsys fs.FS) error {
	for name, f := range map[string]func(r []string) error{
		"xid": c.addXID, "sxid": c.addSXID, "nvlink5": c.addNVLink, "sel": c.addSEL, "redfish": c.addRedfish,
	} {
		file, err := fsys.Open("data/" + name + ".csv")
		if err != nil {
			return err
		}
		rows, err := csv.NewReader(file).ReadAll()
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		for i, row := range rows[1:] {
			if err := f(row); err != nil {
				return fmt.Errorf("%s row %d: %w", name, i+2, err)
			}
		}
	}
	return nil
}

func (c *catalogue) addXID(r []string) error {
	code, err := strconv.Atoi(r[0])
	if err != nil {
		return err
	}
	c.xid[code] = XIDEntry{
		Code: code, Mnemonic: r[1], Meaning: r[2], A100: r[3] == "yes", H100: r[4] == "yes", B100: r[5] == "yes", GB200: r[6] == "yes",
		Action: r[7], Investigate: r[8], AnnouncedSince: r[9], Severity: schemas.Severity(r[10]), Used: r[11] == "yes", Known: true,
	}
	if c.xid[code].Severity.Rank() < 0 {
		return fmt.Errorf("severity %q", r[10])
	}
	return nil
}

func (c *catalogue) addSXID(r []string) error {
	code, err := strconv.Atoi(r[0])
	if err != nil {
		return err
	}
	c.sxid[code] = SXIDEntry{Code: code, Mnemonic: r[1], Meaning: sxidMeaning(r[1]), Known: true}
	return nil
}

// XID returns the catalogue's entry of a code. An unknown code gives an entry
// that is an error and asks for support, so that it is shown.
func XID(code int) XIDEntry {
	if e, ok := load().xid[code]; ok {
		return e
	}
	return XIDEntry{Code: code, Meaning: "Not in the catalogue", Action: ActionContactSupport, Severity: schemas.SeverityError}
}

// XIDs returns how many codes the catalogue holds.
func XIDs() int { return len(load().xid) }

// SXID returns the catalogue's entry of an NVSwitch error code.
func SXID(code int) SXIDEntry {
	if e, ok := load().sxid[code]; ok {
		return e
	}
	return SXIDEntry{Code: code, Meaning: "Not in the catalogue"}
}

// SXIDs returns how many codes the catalogue holds.
func SXIDs() int { return len(load().sxid) }

// SXIDSeverity returns severity and action of an SXid: the message says whether
// it is fatal, the catalogue whether it is known.
func SXIDSeverity(code int, fatal, nonFatal bool) (schemas.Severity, string) {
	switch {
	case !SXID(code).Known:
		return schemas.SeverityError, ActionContactSupport
	case fatal:
		return schemas.SeverityCritical, ActionResetGPU
	case nonFatal:
		return schemas.SeverityInfo, ActionIgnore
	}
	return schemas.SeverityWarning, ActionContactSupport
}

var sxidUnits = strings.NewReplacer(
	"NPORT_", "port ", "NVLTLC_", "transaction layer ", "NVLIPT_LNK_", "link interface ", "NVLIPT_", "link interface ", "DLPL_", "data link ",
	"NXBAR_", "crossbar ", "HOST_", "host interface ", "MINION_", "link controller ", "SOE_", "switch controller ", "AFS_",
	"fabric scheduler ",
	"CCI_", "cable controller ", "OSFP_THERM_", "optical module temperature ", "NVLCTRL_", "link control ",
)

func sxidMeaning(mnemonic string) string {
	s := strings.ToLower(strings.ReplaceAll(sxidUnits.Replace(mnemonic+"_"), "_", " "))
	s = strings.Join(strings.Fields(s), " ")
	return "NVSwitch " + s
}

// RecoveryAction reads the verdict of XID 154, such as "GPU recovery action
// changed from 0x0 (None) to 0x1 (GPU Reset Required)". It returns the vendor's
// action and the verdict's own words; ok is false when the message has none.
func RecoveryAction(message string) (action, verdict string, ok bool) {
	i := strings.LastIndex(message, " to 0x")
	if i < 0 {
		return "", "", false
	}
	num, rest, _ := strings.Cut(message[i+len(" to 0x"):], " ")
	n, err := strconv.ParseUint(num, 16, 16)
	if err != nil {
		return "", "", false
	}
	if a := strings.IndexByte(rest, '('); a >= 0 {
		if b := strings.IndexByte(rest[a:], ')'); b > 0 {
			verdict = rest[a+1 : a+b]
		}
	}
	words := strings.ToLower(verdict)
	switch {
	case strings.Contains(words, "reboot"):
		return ActionRestartHost, verdict, true
	case strings.Contains(words, "reset"), strings.Contains(words, "flr"):
		return ActionResetGPU, verdict, true
	case strings.Contains(words, "drain"):
		return ActionDrainP2P, verdict, true
	case strings.Contains(words, "none"):
		return ActionIgnore, verdict, true
	}
	// Numbers of nvmlDeviceGpuRecoveryAction_t.
	switch n {
	case 0:
		return ActionIgnore, verdict, true
	case 1, 4:
		return ActionResetGPU, verdict, true
	case 2:
		return ActionRestartHost, verdict, true
	case 3:
		return ActionDrainP2P, verdict, true
	}
	return ActionContactSupport, verdict, true
}
