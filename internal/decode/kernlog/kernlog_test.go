package kernlog

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

func TestMessage(t *testing.T) {
	type want struct {
		Type, Code string
		Severity   schemas.Severity
		State      string
		Attrs      map[string]string
	}
	for _, tc := range []struct {
		name, unit, text string
		want             want
	}{
		{
			"fallen off the bus", "", "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			want{"gpu.xid", "79", "critical", "", map[string]string{"pci": "0000:1b:00", "action": "RESTART_BM"}},
		},
		{
			"old driver, no process", "", "NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000009 intr 00800000",
			want{"gpu.xid", "32", "warning", "", map[string]string{"pci": "0000:01:00", "action": "RESTART_APP"}},
		},
		{
			"very old driver, bus alone", "", "NVRM: Xid (0000:03:00): 13, 0003 00000000 00008297",
			want{"gpu.xid", "13", "warning", "", map[string]string{"pci": "0000:03:00", "action": "RESTART_APP"}},
		},
		{
			"with a process and a channel", "kernel",
			"NVRM: Xid (PCI:0000:43:00): 31, pid=2808164, name=torchrun, Ch 00000010, intr 00000000. MMU Fault",
			want{
				"gpu.xid", "31", "warning", "",
				map[string]string{"pci": "0000:43:00", "pid": "2808164", "name": "torchrun", "channel": "00000010", "action": "RESTART_APP"},
			},
		},
		{
			"driver 580 with a channel, on an H200", "kernel",
			"NVRM: Xid (PCI:0000:00:06): 31, pid=1664, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0xdead_00000000. " +
				"Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
			want{
				"gpu.xid", "31", "warning", "",
				map[string]string{"pci": "0000:00:06", "pid": "1664", "name": "python3", "channel": "0000000a", "action": "RESTART_APP"},
			},
		},
		{
			"driver 580 without a process, on an H200", "", "NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address",
			want{"gpu.xid", "13", "warning", "", map[string]string{"pci": "0000:00:06", "action": "RESTART_APP"}},
		},
		{
			"driver 580 with the channel last, on an H200", "", "NVRM: Xid (PCI:0000:00:06): 43, pid=1691, name=python3, channel 0x0000000a",
			want{"gpu.xid", "43", "warning", "", map[string]string{"pci": "0000:00:06", "pid": "1691", "name": "python3", "channel": "0000000a", "action": "IGNORE"}},
		},
		{
			"after another", "", "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
			want{"gpu.xid", "45", "warning", "", map[string]string{
				"pci": "0000:dc:00", "pid": "1818990", "name": "python3", "channel": "00000001", "caused_by_xid": "149", "action": "WORKFLOW_XID_45",
			}},
		},
		{
			"with a UUID in the address", "", "NVRM: Xid (PCI:0000:1b:00 GPU-8a5f1c22-0000-1111-2222-333344445555): 48, pid=1, name=a, DBE",
			want{"gpu.xid", "48", "critical", "", map[string]string{
				"pci": "0000:1b:00", "uuid": "GPU-8a5f1c22-0000-1111-2222-333344445555", "pid": "1", "name": "a", "action": "WORKFLOW_XID_48",
			}},
		},
		{
			"MIG instance", "", "NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 13, pid=99, name=x, Graphics Exception",
			want{
				"gpu.xid", "13", "warning", "",
				map[string]string{"pci": "0000:1b:00", "gpu_instance": "05", "pid": "99", "name": "x", "action": "RESTART_APP"},
			},
		},
		{
			"the driver's verdict", "", "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
			want{"gpu.xid", "154", "error", "", map[string]string{"pci": "0008:01:00", "recovery": "Node Reboot Required", "action": "RESTART_BM"}},
		},
		{
			"NVLink 5, not fatal", "",
			"NVRM: Xid (PCI:0000:61:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 04 (0x00082226 0x00000001 0x0 0x0 0x0 0x0)",
			want{"gpu.xid", "149", "info", "", map[string]string{
				"pci": "0000:61:00", "unit": "NETIR_BER_EVENT", "link": "04", "action": "WORKFLOW_NVLINK5_ERR",
				"decoded_action": "IGNORE", "investigate": "INVESTIGATE_LINK_SI_AND_CABLES", "effect": "Local: none; Remote: none",
			}},
		},
		{
			"NVLink 5, no link", "",
			"NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
			want{"gpu.xid", "149", "critical", "", map[string]string{
				"pci": "0019:01:00", "unit": "NETIR", "action": "WORKFLOW_NVLINK5_ERR",
				"decoded_action": "RESET_GPU", "investigate": "SYMPATHETIC_REPORT_SOLO",
				"effect": "Local: PacketLoss(possible/delayed); Remote: PacketLoss(possible/delayed)",
			}},
		},
		{
			"unknown code", "", "NVRM: Xid (PCI:0000:61:00): 777, pid=1, name=a, something new",
			want{"gpu.xid", "777", "error", "", map[string]string{"pci": "0000:61:00", "pid": "1", "name": "a", "action": "CONTACT_SUPPORT"}},
		},
		{
			"switch, not fatal", "", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
			want{"nvswitch.sxid", "12028", "info", "", map[string]string{
				"pci": "0000:c1:00.0", "nvswitch": "3", "link": "32", "fatal": "false", "mnemonic": "NPORT_EGRESS_PRIVRSPERR", "action": "IGNORE",
			}},
		},
		{
			"switch, fatal", "", "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 55 LTSSM Fault Up",
			want{"nvswitch.sxid", "20034", "critical", "", map[string]string{
				"pci": "0000:07:00.0", "nvswitch": "2", "link": "55", "fatal": "true", "mnemonic": "DLPL_LTSSM_FAULT_UP", "action": "RESET_GPU",
			}},
		},
		{
			"fabric manager", "nvidia-fabricmanager",
			"detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33",
			want{"nvswitch.sxid", "20034", "critical", "", map[string]string{
				"pci": "0000:86:00.0", "nvswitch": "3", "link": "33", "fatal": "true", "mnemonic": "DLPL_LTSSM_FAULT_UP", "action": "RESET_GPU",
			}},
		},
		{
			"cgroup without memory", "", "Memory cgroup out of memory: Killed process 271036 (jupyter-lab) total-vm:88200412kB",
			want{"host.oom", "cgroup", "warning", "", map[string]string{"pid": "271036", "name": "jupyter-lab", "action": "RESTART_APP"}},
		},
		{
			"hung task", "", "INFO: task python3:1139461 blocked for more than 122 seconds.",
			want{"host.hung_task", "122", "error", "", map[string]string{"pid": "1139461", "name": "python3", "action": "RESTART_BM"}},
		},
		{
			"machine check", "", "mce: [Hardware Error]: CPU 35: Machine Check Exception: 5 Bank 14: be005f0c87f96e48",
			want{"host.mce", "bank14", "critical", "", map[string]string{"cpu": "35", "action": "CONTACT_SUPPORT"}},
		},
		{
			"corrected PCIe error", "", "pcieport 0000:2e:01.0: AER: Corrected error received: 0000:2f:00.0",
			want{"host.pcie_aer", "corrected", "info", "", map[string]string{"pci": "0000:2f:00.0", "action": "IGNORE"}},
		},
		{
			"details of a PCIe error", "",
			"nvidia 0000:2f:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
			want{"host.pcie_aer", "fatal", "critical", "", map[string]string{"pci": "0000:2f:00.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"error that the machine has corrected", "", "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 13: 8c00004a000800c2",
			want{"host.mce", "bank13", "warning", "", map[string]string{"cpu": "12", "action": "CONTACT_SUPPORT"}},
		},
		{
			"page of damaged memory", "", "Memory failure: 0x1234567: Sending SIGBUS to python:3456 due to hardware memory corruption",
			want{"host.mce", "memory", "critical", "", map[string]string{"action": "CONTACT_SUPPORT"}},
		},
		{
			"damaged XFS", "", "XFS (nvme0n1p1): Metadata corruption detected at xfs_agi_verify+0x1/0x2 [xfs], xfs_agi block 0x2",
			want{"host.fs_error", "xfs", "error", "", map[string]string{"disk": "nvme0n1p1", "action": "CONTACT_SUPPORT"}},
		},
		{
			"journal of a file system", "", "Aborting journal on device sda1-8.",
			want{"host.fs_error", "journal", "error", "", map[string]string{"disk": "sda1-8", "action": "CONTACT_SUPPORT"}},
		},
		{
			"disk that is gone", "", "nvme nvme0: Removing after probe failure status: -19",
			want{"host.fs_error", "io", "error", "", map[string]string{"disk": "nvme0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"unreadable sector", "", "critical medium error, dev sda, sector 123 op 0x0:(READ) flags 0x0",
			want{"host.fs_error", "io", "error", "", map[string]string{"disk": "sda", "action": "CONTACT_SUPPORT"}},
		},
		{
			"link of another adapter", "", "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down",
			want{"nic.down", "link", "error", "raised", map[string]string{"pci": "0000:01:00.0", "port": "eno1", "action": "CONTACT_SUPPORT"}},
		},
		{
			"the driver's name cut off", "kernel", "Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
			want{"gpu.xid", "79", "critical", "", map[string]string{"pci": "0000:1b:00", "action": "RESTART_BM"}},
		},
		{
			"unknown switch code", "", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 99999, Fatal, Link 30 something new",
			want{
				"nvswitch.sxid", "99999", "error", "",
				map[string]string{"pci": "0000:c1:00.0", "nvswitch": "3", "link": "30", "fatal": "true", "action": "CONTACT_SUPPORT"},
			},
		},
		{
			"adapter lost its health", "", "mlx5_core 0000:40:00.0: poll_health:790:(pid 0): device's health compromised - reached miss count",
			want{"nic.error", "health_compromised", "critical", "", map[string]string{"pci": "0000:40:00.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"adapter's link", "", "mlx5_core 0000:40:00.0 ens1f0np0: Link down",
			want{"nic.down", "link", "error", "raised", map[string]string{"pci": "0000:40:00.0", "port": "ens1f0np0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"adapter is hot", "", "mlx5_core 0000:40:00.0: temp_warn:142:(pid 0): High temperature on sensors with bit set 0 1",
			want{"nic.overheating", "temperature", "warning", "", map[string]string{"pci": "0000:40:00.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"syndrome of an adapter", "", "mlx5_core 0000:40:00.0: print_health_info:431:(pid 0): synd 0x8: unrecoverable hardware error",
			want{"nic.error", "hardware_unrecoverable", "critical", "", map[string]string{"pci": "0000:40:00.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"syndrome that the firmware rates", "",
			"mlx5_core 0000:40:00.0: print_health_info:424:(pid 0): Health issue observed, firmware internal error, severity(4) WARNING:",
			want{"nic.error", "firmware_internal", "warning", "", map[string]string{"pci": "0000:40:00.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"command that firmware refused", "",
			"mlx5_core 0000:40:00.0: mlx5_cmd_out_err:838:(pid 12): CREATE_SQ(0x904) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0xd61c0b), err(-22)",
			want{"nic.error", "command", "warning", "", map[string]string{
				"pci": "0000:40:00.0", "command": "CREATE_SQ", "status": "bad parameter", "syndrome": "0xd61c0b", "action": "CONTACT_SUPPORT",
			}},
		},
		{
			"the same of an older driver", "",
			"mlx5_core 0000:04:00.0: mlx5_cmd_check:795:(pid 9993): RTR2RTS_QP(0x504) op_mod(0x0) failed, status internal error(0x1), syndrome (0x4bb88f)",
			want{"nic.error", "command", "error", "", map[string]string{
				"pci": "0000:04:00.0", "command": "RTR2RTS_QP", "status": "internal error", "syndrome": "0x4bb88f", "action": "CONTACT_SUPPORT",
			}},
		},
		{
			"register that a sound adapter does not have", "",
			"mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5), syndrome (0x305684), err(-22)",
			want{
				"nic.error", "command", "info", "",
				map[string]string{"command": "ACCESS_REG", "status": "bad resource", "syndrome": "0x305684", "action": "IGNORE"},
			},
		},
		{
			"command without an answer", "",
			"mlx5_core 0000:40:00.0: wait_func:1136:(pid 1): QUERY_VPORT_STATE(0x750) timeout. Will cause a leak of a command resource",
			want{"nic.error", "command_timeout", "error", "", map[string]string{"pci": "0000:40:00.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"another maker's adapter", "", "bnxt_en 0000:3b:00.0 eno1np0: Firmware fatal reset event received",
			want{"nic.error", "fatal", "critical", "", map[string]string{"pci": "0000:3b:00.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"queue that stands", "", "ens1f0 (ice): NETDEV WATCHDOG: CPU: 5: transmit queue 3 timed out 5096 ms",
			want{"nic.error", "tx_timeout", "error", "", map[string]string{"port": "ens1f0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"downstream port is contained", "", "pcieport 0000:2e:01.0: DPC: containment event, status:0x1f01 source:0x0000",
			want{"host.pcie_aer", "dpc", "critical", "", map[string]string{"pci": "0000:2e:01.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"device that did not come back", "", "pcieport 0000:2e:01.0: AER: device recovery failed",
			want{"host.pcie_aer", "recovery_failed", "error", "", map[string]string{"pci": "0000:2e:01.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"fatal error of a newer kernel", "", "pcieport 0000:2e:01.0: AER: Uncorrectable (Fatal) error message received from 0000:2f:00.0",
			want{"host.pcie_aer", "fatal", "critical", "", map[string]string{"pci": "0000:2f:00.0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"journal that lost data", "", "JBD2: Detected IO errors while flushing file data on dm-1-8",
			want{"host.fs_error", "ext4", "error", "", map[string]string{"disk": "dm-1-8", "action": "CONTACT_SUPPORT"}},
		},
		{
			"sector of an NVMe disk", "", "nvme0n1: Read(0x2) @ LBA 123, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR",
			want{"host.fs_error", "io", "error", "", map[string]string{"disk": "nvme0n1", "action": "CONTACT_SUPPORT"}},
		},
		{
			"uncorrectable memory error", "", "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1)",
			want{"dimm.ecc_ue", "DIMM", "critical", "", map[string]string{"slot": "CPU_SrcID#0_MC#0_Chan#1_DIMM#0", "action": "CONTACT_SUPPORT"}},
		},
		{
			"disk of an array", "", "md/raid1:md0: Disk failure on nvme1n1p1, disabling device.",
			want{"host.fs_error", "raid", "error", "", map[string]string{"disk": "nvme1n1p1", "action": "CONTACT_SUPPORT"}},
		},
		{
			"failed unit", "systemd", "nvidia-fabricmanager.service: Failed with result 'exit-code'.",
			want{"service.failed", "nvidia-fabricmanager", "error", "", map[string]string{"action": "CONTACT_SUPPORT"}},
		},
		{
			"gone beside XID 79", "", "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
			want{"gpu.missing", "FALLEN_OFF_BUS", "critical", "", map[string]string{"pci": "0000:1b:00.0", "action": "RESTART_BM"}},
		},
		{
			"file system", "", "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm x: reading directory lblock 0",
			want{"host.fs_error", "ext4", "error", "", map[string]string{"disk": "nvme0n1p2", "action": "CONTACT_SUPPORT"}},
		},
		{
			"the oldest form of the bus", "", "NVRM: Xid (0007:00): 13, 0003 00000000",
			want{"gpu.xid", "13", "warning", "", map[string]string{"pci": "0000:07:00", "action": "RESTART_APP"}},
		},
		{"panic", "", "Kernel panic - not syncing: Fatal exception", want{
			"host.panic", "panic", "critical", "", map[string]string{"action": "RESTART_BM"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p Parser
			ev := one(t, p.Message(tc.unit, tc.text))
			if d := cmp.Diff(tc.want, want{ev.Type, ev.Code, ev.Severity, ev.State, ev.Attrs}); d != "" {
				t.Error(d)
			}
		})
	}
}

// The driver writes the process before the unit in some releases, and not in others.
func TestNVLinkCodesAreDecodedWithAndWithoutAProcess(t *testing.T) {
	f, err := os.Open("../../../schemas/faults/data/nvlink5.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 90 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, row := range rows[1:] {
		intr, err := strconv.ParseUint(strings.ReplaceAll(row[3], "-", "0"), 2, 32)
		if err != nil {
			t.Fatal(err)
		}
		unit, status := strings.Fields(strings.Split(row[1], "/")[0])[0], strings.Split(row[4], "/")[0]
		if status == "" {
			status = "0x00000000"
		}
		fatal := "Nonfatal"
		if row[10] == "Fatal" {
			fatal = "Fatal"
		}
		rest := fmt.Sprintf("%s %s XC0 i0 Link 07 (0x%08x %s 0x00000000 0x00000000 0x00000000 0x00000000)", unit, fatal, intr, status)
		var without schemas.Event
		for _, process := range []string{
			"", "pid=1234, ", "pid=1234, name=python3, ", "pid='<unknown>', name=<unknown>, ", "pid=7, name=a b-c, ",
		} {
			ev := one(t, new(Parser).Message("", "NVRM: Xid (PCI:0000:61:00): "+row[0]+", "+process+rest))
			if process == "" {
				without = ev
				if ev.Attr("unit") != unit || ev.Attr("decoded_action") == "" || ev.Attr("link") != "07" {
					t.Errorf("%s %s: %+v", row[0], rest, ev)
				}
				continue
			}
			for _, k := range []string{"unit", "decoded_action", "investigate", "effect", "link", "action"} {
				if ev.Attr(k) != without.Attr(k) {
					t.Errorf("%s %s%s: %s is %q, want %q", row[0], process, rest, k, ev.Attr(k), without.Attr(k))
				}
			}
			if ev.Severity != without.Severity {
				t.Errorf("%s %s%s: %s, want %s", row[0], process, rest, ev.Severity, without.Severity)
			}
		}
	}
}

func TestOnlyTheKernelSpeaksForTheKernel(t *testing.T) {
	for _, text := range []string{
		"NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.", "saw NVRM: Xid (PCI:0000:1b:00): 79, x",
		"Xid (PCI:0000:1b:00): 79, x",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 32", "Kernel panic - not syncing: x", "Linux version 6.8.0",
		"reboot: Restarting system",
		"detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33",
		"systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
		"nvidia-fabricmanager.service: Failed with result 'exit-code'.",
		"Out of memory: Killed process 1 (a) x", "mce: [Hardware Error]: CPU 35: Machine Check Exception: 5 Bank 14: be005f0c87f96e48",
	} {
		for _, unit := range []string{"python3", "user", "systemd --user", "slurmstepd", "NVRM", "kernel-trainer"} {
			var p Parser
			if ev := p.Message(unit, text); len(ev) > 0 || p.ShuttingDown() {
				t.Errorf("%s: %q gives %+v", unit, text, ev)
			}
		}
	}
	for _, line := range []string{
		"12,7,1000,-;NVRM: Xid (PCI:0000:1b:00): 79, x", "12,7,1000,-;kernel: NVRM: Xid (PCI:0000:1b:00): 79, x",
		"12,7,1000,-;a b c NVRM: Xid (PCI:0000:1b:00): 79, x",
	} {
		r, err := ParseKmsg(line)
		if ev := new(Parser).Message(r.Unit, r.Text); err != nil || len(ev) > 0 {
			t.Errorf("%q of a process gives %+v, %v", line, ev, err)
		}
	}
}

func TestOneKillingIsOneEvent(t *testing.T) {
	const summary = "oom-kill:constraint=%s,nodemask=(null),cpuset=step_0,mems_allowed=0-1,global_oom,task_memcg=/slurm/job_7,task=python3,pid=%d,uid=1000"
	for _, tc := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"cgroup", []string{
			"python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", fmt.Sprintf(summary, "CONSTRAINT_MEMCG", 271),
			"Memory cgroup out of memory: Killed process 271 (python3) total-vm:8kB", "oom_reaper: reaped process 271 (python3), now anon-rss:0kB",
		}, []string{"cgroup warning 271 python3"}},
		{
			"whole machine",
			[]string{fmt.Sprintf(summary, "CONSTRAINT_NONE", 9), "Out of memory: Killed process 9 (python3) total-vm:8kB"},
			[]string{"global error 9 python3"},
		},
		{
			"older kernel",
			[]string{"Out of memory: Kill process 9 (python3) score 900 or sacrifice child", "Killed process 9 (python3) total-vm:8kB"},
			[]string{"global error 9 python3"},
		},
		{"a group dies", []string{
			fmt.Sprintf(summary, "CONSTRAINT_MEMCG", 5), "Memory cgroup out of memory: Killed process 5 (python3) x",
			"Tasks in /slurm/job_7 are going to be killed due to memory.oom.group set", "Memory cgroup out of memory: Killed process 5 (python3) x",
			"Memory cgroup out of memory: Killed process 6 (worker) x",
		}, []string{"cgroup warning 5 python3"}},
		{"twice", []string{
			fmt.Sprintf(summary, "CONSTRAINT_MEMCG", 5), "Memory cgroup out of memory: Killed process 5 (python3) x",
			fmt.Sprintf(summary, "CONSTRAINT_MEMCG", 6), "Memory cgroup out of memory: Killed process 6 (python3) x",
		}, []string{"cgroup warning 5 python3", "cgroup warning 6 python3"}},
	} {
		var p Parser
		var got []string
		for _, l := range tc.lines {
			for _, ev := range p.Message("", l) {
				got = append(got, strings.Join([]string{ev.Code, string(ev.Severity), ev.Attr("pid"), ev.Attr("name")}, " "))
			}
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

func TestAbsenceIsToldInWhateverLinesItComes(t *testing.T) {
	const sentence = "NVRM: The NVIDIA GPU 0000:b1:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is not responding to commands."
	words := strings.Fields(strings.TrimPrefix(sentence, "NVRM: "))
	for cut := 4; cut < len(words); cut++ {
		a, b := "NVRM: "+strings.Join(words[:cut], " "), "NVRM: "+strings.Join(words[cut:], " ")
		for name, records := range map[string][]string{
			"two records": {a, b}, "one of two lines": {a + "\n" + b}, "one line": {a + " " + b}, "one line with its escape": {a + `\n` + b},
			"with another between": {a, "usb 1-1: x", b},
		} {
			var p Parser
			var got []schemas.Event
			for _, r := range records {
				got = append(got, p.Message("", r)...)
			}
			if len(got) != 1 || got[0].Attr("pci") != "0000:b1:00.0" || got[0].Type != "gpu.missing" || !strings.Contains(sentence, got[0].Message) {
				t.Errorf("%s, cut after %q: %+v", name, words[cut-1], got)
			}
		}
	}
	var p Parser
	if ev := p.Message(
		"",
		"NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1b80)\nNVRM: installed in this system is not supported by the driver release.\nNVRM: fallen off the bus",
	); len(ev) > 0 {
		t.Errorf("a GPU that is not supported is told as gone: %+v", ev)
	}
}

func TestDriverTellsAbsenceOverThreeLines(t *testing.T) {
	var p Parser
	var got []schemas.Event
	for _, text := range []string{
		"NVRM: The NVIDIA GPU 0000:b1:00.0", "NVRM: (PCI ID: 10de:2330) installed in this system has",
		"NVRM: fallen off the bus and is not responding to commands.", "NVRM: fallen off the bus and is not responding to commands.",
	} {
		got = append(got, p.Message("", text)...)
	}
	if len(got) != 1 || got[0].Type != "gpu.missing" || got[0].Attr("pci") != "0000:b1:00.0" {
		t.Errorf("got %+v", got)
	}
}

func TestLinesThatMeanNothing(t *testing.T) {
	var p Parser
	for _, text := range []string{
		"", "usb 1-1: new high-speed USB device", "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Data {0x0000002b, 0x0000002b}",
		"nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44 Sub-engine instance 00",
		"NVRM: loading NVIDIA UNIX Open Kernel Module", "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636", "NVRM: Xid (PCI",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal",
	} {
		if ev := p.Message("", text); len(ev) > 0 {
			t.Errorf("%q gives %+v", text, ev)
		}
	}
}

func TestUUIDComesFromTheLineBefore(t *testing.T) {
	var p Parser
	p.Message("", "NVRM: GPU at PCI:0000:1b:00: GPU-34d7319c-5b19-1e75-186d-c187099e4fe5")
	p.Message("", "NVRM: GPU Board Serial Number: 1320")
	ev := one(t, p.Message("", "NVRM: Xid (PCI:0000:1b:00): 48, pid=1, name=a, x"))
	if ev.Attr("uuid") != "GPU-34d7319c-5b19-1e75-186d-c187099e4fe5" {
		t.Fatalf("%+v", ev)
	}
}

func TestRebootSaysHowTheLastBootEnded(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		severity   schemas.Severity
		lines      []string
	}{
		{"first sight", "boot", "info", nil},
		{"clean", "clean", "info", []string{"usb 1-1: x", "reboot: Restarting system"}},
		{"unclean", "unclean", "warning", []string{"usb 1-1: x"}},
		{"after a panic", "panic", "warning", []string{"Kernel panic - not syncing: Fatal exception"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p Parser
			for _, l := range tc.lines {
				p.Message("", l)
			}
			ev := one(t, p.Message("", "Linux version 6.8.0-1029-nvidia (buildd@x)"))
			if ev.Type != "host.reboot" || ev.Code != tc.code || ev.Severity != tc.severity {
				t.Fatalf("%+v", ev)
			}
		})
	}
}

func TestParseDmesgForms(t *testing.T) {
	day := time.Date(2026, 11, 21, 6, 50, 24, 0, time.UTC)
	for _, tc := range []struct {
		name, line string
		want       Record
	}{
		{"seconds", "[ 1399.140323] NVRM: Xid", Record{Priority: -1, SinceBoot: 1399140323 * time.Microsecond, Text: "NVRM: Xid"}},
		{"with the caller", "[ 1399.140323][ T1234] NVRM: Xid", Record{
			Priority: -1, SinceBoot: 1399140323 * time.Microsecond, Text: "NVRM: Xid",
		}},
		{"ctime", "[Sat Nov 21 06:50:24 2026] NVRM: Xid", Record{Priority: -1, Time: day, Text: "NVRM: Xid"}},
		{"syslog without its head", "kernel: [123.456789] nvidia-nvswitch0: SXid", Record{
			Priority: -1, SinceBoot: 123456789 * time.Microsecond, Unit: "kernel", Text: "nvidia-nvswitch0: SXid",
		}},
		{"iso with facility", "kern  :err   : 2026-11-21T06:50:24,000000+00:00 nvidia-nvswitch1: SXid", Record{
			Priority: 3, Time: day, Text: "nvidia-nvswitch1: SXid",
		}},
		{"raw", "<3>[ 1.5] NVRM: Xid", Record{Priority: 3, SinceBoot: 1500 * time.Millisecond, Text: "NVRM: Xid"}},
		{"facility and seconds", "kern  :warn  : [ 1.5] NVRM: Xid", Record{Priority: 4, SinceBoot: 1500 * time.Millisecond, Text: "NVRM: Xid"}},
		{"syslog file", "Nov 21 06:50:24 gpu-1 kernel: [ 12.345678] NVRM: Xid", Record{
			Priority: -1, Time: day, SinceBoot: 12345678 * time.Microsecond, Host: "gpu-1", Unit: "kernel", Text: "NVRM: Xid",
		}},
		{"iso syslog", "2026-11-21T06:50:24+00:00 gpu-1 systemd[1]: a.service: Failed", Record{
			Priority: -1, Time: day, Host: "gpu-1", Unit: "systemd", Text: "a.service: Failed",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := Text{Now: day}
			r, known := text.Parse(tc.line)
			if !known {
				t.Fatal("not understood")
			}
			if d := cmp.Diff(tc.want, r); d != "" {
				t.Error(d)
			}
		})
	}
	if r, known := new(Text).Parse("NVRM: Xid (PCI:0000:01:00): 79, x"); known || !r.Undated || r.Text == "" {
		t.Errorf("line without a time: %+v %v", r, known)
	}
}

// one returns the only event.
func one(t *testing.T, events []schemas.Event) schemas.Event {
	t.Helper()
	if len(events) != 1 {
		t.Fatalf("%d events: %+v", len(events), events)
	}
	return events[0]
}

func TestParseKmsg(t *testing.T) {
	r, err := ParseKmsg(`3,1042,5034567,-;NVRM: Xid (PCI:0000:1b:00): 79, a\x0ab`)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Record{
		Priority: 3, Sequence: 1042, SinceBoot: 5034567 * time.Microsecond, Text: "NVRM: Xid (PCI:0000:1b:00): 79, a\nb",
	}, r); d != "" {
		t.Error(d)
	}
	if _, err := ParseKmsg(" SUBSYSTEM=pci"); !errors.Is(err, ErrContinuation) {
		t.Errorf("continuation: %v", err)
	}
	for _, bad := range []string{"x", "a,b,c,-;t", "1,2;t", "1,-2,3,-;t", "1,2,99999999999999999999,-;t"} {
		if _, err := ParseKmsg(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestJournalExportWithBinaryField(t *testing.T) {
	msg := "NVRM: Xid (PCI:0000:1b:00): 79, x\nsecond line"
	in := "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1790000000000000\n_TRANSPORT=kernel\n_HOSTNAME=gpu-1\nMESSAGE\n" +
		string([]byte{byte(len(msg)), 0, 0, 0, 0, 0, 0, 0}) + msg + "\nPRIORITY=3\n\n" +
		"bad line\nMESSAGE=lost\n\n" +
		"__REALTIME_TIMESTAMP=1790000001000000\nSYSLOG_IDENTIFIER=systemd\nMESSAGE=a.service: Failed with result 'exit-code'.\n"
	j := NewJournal(bufio.NewReader(strings.NewReader(in)), false)
	r, err := j.Next()
	if err != nil || r.Text != msg || r.Host != "gpu-1" || r.Unit != "kernel" || r.Priority != 3 {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err = j.Next(); !errors.Is(err, ErrEntry) {
		t.Fatalf("bad entry: %v", err)
	}
	if r, err = j.Next(); err != nil || r.Unit != "systemd" {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err = j.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("end: %v", err)
	}
}

func TestJournalJSON(t *testing.T) {
	r, err := ParseJournal([]byte(`{"__REALTIME_TIMESTAMP":"1790000000000000","_TRANSPORT":"kernel","MESSAGE":[78,86,82,77,58,32,88]}`))
	if err != nil || r.Text != "NVRM: X" || r.Time.Unix() != 1790000000 || r.Unit != "kernel" {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := ParseJournal([]byte(`not json`)); !errors.Is(err, ErrEntry) {
		t.Fatalf("bad entry: %v", err)
	}
}

// Lines of the IMEX daemon are read by what they say. Those that are quoted in public logs are marked so;
// for the loss of a node there is none, and any wording of it counts.
func TestIMEX(t *testing.T) {
	const stamp = "[Mar 27 2025 15:47:10] "
	const failed = "service.failed nvidia-imex "
	for line, want := range map[string]string{
		// Quoted:
		"IMEX Log initializing at: 3/27/2025 15:47:10.217": "",

		stamp + "[INFO] [tid 39] IMEX version 570.124.06 is running with the following configuration options":                         "",
		stamp + "[INFO] [tid 39] NvGpu Library version matched with GPU Driver version":                                               "",
		stamp + "[INFO] [tid 39] IMEX_WAIT_FOR_QUORUM != FULL, continuing initialization without waiting":                             "",
		stamp + "[INFO] [tid 39] Identified this node as ID 1, using bind IP of '10.1.1.2', and network interface of enP2s2f1":        "",
		stamp + "[INFO] [tid 67] Connection established to node 0 with ip address 10.1.1.8. Number of times connected: 1":             "",
		stamp + "[INFO] [tid 67] Connection established to node 0 with ip address 10.1.1.8. Number of times connected: 2":             "imex.domain peer_lost info cleared node0 10.1.1.8",
		stamp + "[ERROR] [tid 39] No matching network interface found for any IP addresses in the node configuration file /etc/n.cfg": failed + "error initialization",
		stamp + "[ERROR] [tid 39] NvGpu Library version 570.124 is not matching with current GPU driver version 570.86":               failed + "error version_mismatch",
		// What else means a fault:
		stamp + "[ERROR] [tid 67] Lost connection to node 3 with ip address 10.1.1.9, retrying": "imex.domain peer_lost warning raised node3 10.1.1.9",
		stamp + "[WARNING] [tid 67] Node 17 disconnected":                                       "imex.domain peer_lost warning raised node17",
		stamp + "[WARNING] [tid 67] IMEX domain is DEGRADED":                                    "imex.domain degraded warning",
		stamp + "[ERROR] [tid 67] domain state changed to UNAVAILABLE":                          "imex.domain down error",
		stamp + "[CRITICAL] [tid 67] out of everything":                                         failed + "error initialization",
		stamp + "[ERROR] [tid 67] a message that nobody has seen":                               failed + "warning error",
		stamp + "[WARNING] [tid 67] a gRPC channel is slow":                                     "",
		stamp + "[INFO] [tid 67] lost connection to node 3":                                     "",
	} {
		ev, at, ok := new(Parser).IMEX(line, time.FixedZone("", 8*3600))
		got := ""
		if ok {
			words := []string{ev.Type, ev.Code, string(ev.Severity), ev.State, ev.Attr("peer"), ev.Attr("address"), ev.Attr("reason")}
			got = strings.Join(strings.Fields(strings.Join(words, " ")), " ")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
		if strings.HasPrefix(line, stamp) && !at.Equal(time.Date(2025, 3, 27, 7, 47, 10, 0, time.UTC)) {
			t.Errorf("%s: %s", line, at)
		}
	}
}

// A node that is connected ends only what was said of it.
func TestIMEXNodesThatComeBack(t *testing.T) {
	lost := func(n int) string {
		return fmt.Sprintf("[Mar 27 2025 15:50:10] [ERROR] [tid 67] Lost connection to node %d", n)
	}
	found := func(n, times int) string {
		return fmt.Sprintf(
			"[Mar 27 2025 15:51:10] [INFO] [tid 67] Connection established to node %d with ip address 10.1.1.1. Number of times connected: %d", n, times,
		)
	}
	var p Parser
	for i, c := range []struct{ line, want string }{
		{found(1, 1), ""},
		{found(2, 1), ""},
		{lost(2), "raised"},
		{found(1, 2), ""},
		{found(2, 2), "cleared"},
		{found(2, 3), ""},
		{lost(2), "raised"},
		{found(2, 1), "cleared"},
		{found(3, 7), "cleared"},
		{found(3, 8), ""},
	} {
		if ev, _, _ := p.IMEX(c.line, time.UTC); ev.State != c.want {
			t.Errorf("%d: %s: %q, want %q", i, c.line, ev.State, c.want)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("", "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
	f.Add("", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress")
	f.Add("systemd", "a.service: Failed with result 'exit-code'.")
	f.Fuzz(func(t *testing.T, unit, text string) {
		var p Parser
		for _, ev := range p.Message(unit, text) {
			if ev.Type == "" || ev.Severity.Rank() < 0 || ev.Attr("action") == "" || ev.Message == "" {
				t.Errorf("incomplete event %+v", ev)
			}
		}
		before := Parser{}
		if line, _ := firstLine(text); !telling.in(line) && !adapterNamed(firstWord(line)) {
			if ev, ok := before.says(line); ok || before.ShuttingDown() || before.oom != (oomState{}) {
				t.Errorf("%q is not looked at, and means %+v", line, ev)
			}
		}
		p.FabricManager(text, time.UTC)
		if ev, _, ok := p.IMEX(text, time.UTC); ok && (ev.Type == "" || ev.Severity.Rank() < 0 || ev.Attr("action") == "" || ev.Message == "") {
			t.Errorf("incomplete event %+v", ev)
		}
	})
}

func FuzzFormats(f *testing.F) {
	f.Add("3,1042,5034567,-;NVRM: Xid")
	f.Add("[ 1399.140323] NVRM: Xid")
	f.Add("kern  :err   : 2026-11-21T06:50:24,000000+00:00 x")
	f.Fuzz(func(t *testing.T, line string) {
		_, _ = ParseKmsg(line)
		var text Text
		for l := range strings.Lines(line + "\n" + line) {
			if r, known := text.Parse(l); !known && (r.Unit != "" || !r.Undated) {
				t.Errorf("%q: %+v of a line that was not understood", l, r)
			}
		}
	})
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("__REALTIME_TIMESTAMP=1\nMESSAGE\n\x01\x00\x00\x00\x00\x00\x00\x00a\n\n"))
	f.Add([]byte(`{"MESSAGE":[1,2]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, _ = ParseJournal(in)
		_, _ = ParseDmesgJSON(in)
		for _, verbose := range []bool{false, true} {
			j := NewJournal(bufio.NewReader(bytes.NewReader(in)), verbose)
			ended := false
			for range len(in) + 2 {
				if _, err := j.Next(); err != nil && !errors.Is(err, ErrEntry) {
					ended = true
					break
				}
			}
			if !ended {
				t.Error("reading does not end")
			}
		}
	})
}
