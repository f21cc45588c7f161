// A library with the symbols of libnvidia-ml.so.1 that the agent calls, over a machine that a
// text file describes: the environment variable AUSPEX_NVML_STUB names it, and it is read anew
// whenever it changes. A line of it is one of
//
//	gpus 8                      how many boards there are
//	return CALL CODE            what a call without a GPU answers
//	hang CALL                   such a call does not return while the file says so
//	gpu N return CALL CODE      what a call of one GPU answers; CALL may be *
//	gpu N fails KEY CODE        what the call answers that gives a value, below
//	gpu N hang CALL             it does not return
//	gpu N hang-when-set CALL    nor does this, once something of the GPU was set
//	gpu N gone                  the GPU is lost, and not there after the next nvmlInit
//	gpu N process PID MIB [ID]  a process that has the GPU open, or an instance of it
//	gpu N mig I ID PROFILE      its MIG device I, of GPU instance ID; what that answers is said of GPU 1000 + 16 N + I
//	gpu N set KEY VALUE         a value, below
//	gpu N stuck KEY             a value that setting does not change
//	driver VERSION              and library VERSION: how driver and library are called
//	reload N                    with another N the driver was loaded anew: what was set is gone
//	xid SERIAL N CODE           GPU N has an XID; each serial number is told once, to whoever listened before
//
// While the library is initialised there is a file with .open behind the name of the description; each
// limit of power that is set adds a line to one with .set behind it.
// Types and codes are those of the NVML API reference. With OLD it has what a driver of 2018 has.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;

enum { GPUS = 64, LINES = 4096, SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, SMALL = 7, TIMEOUT = 10, LOST = 15 };

typedef struct gpu { int number; } gpu;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { u32 pid; u64 used; u32 gi, ci; } process_info;
typedef struct { u32 field, scope; long long time, latency; u32 type; int ret; u64 value; } field_value;
typedef struct { gpu *device; u64 type, data; u32 gi, ci; } event_data;
typedef struct { u64 total, free, used; } memory_info;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_info_v2;
_Static_assert(sizeof(pci_info) == 68 && sizeof(process_info) == 24 && sizeof(field_value) == 40 && sizeof(event_data) == 32 && sizeof(memory_info_v2) == 40, "ABI of NVML");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char text[160]; } lines[LINES];
static int count;
static struct timespec changed;
static ino_t inode;
static gpu boards[GPUS], *listed[GPUS];
static int inits, known;

// What was set since the driver was loaded.
static struct { int gpu; char key[64]; u64 value; } given[256];
static int gifts, loaded;

// mark has a file beside the description say whether the library is in use.
static void mark(int used) {
	char name[600];
	snprintf(name, sizeof name, "%s.open", getenv("AUSPEX_NVML_STUB"));
	if (!used) { unlink(name); return; }
	FILE *f = fopen(name, "w");
	if (f) fclose(f);
}

static void fail(const char *line) {
	fprintf(stderr, "nvml stub: cannot read the line %s\n", line);
	abort();
}

// load reads the file if it is another than before; the caller holds the lock.
static void load(void) {
	const char *path = getenv("AUSPEX_NVML_STUB");
	struct stat st;
	if (!path || stat(path, &st)) fail("AUSPEX_NVML_STUB names no file");
	static char current[512]; // another machine has nothing of what was set on the one before, and nobody who uses it yet
	if (strcmp(current, path)) snprintf(current, sizeof current, "%s", path), gifts = loaded = inits = 0;
	if (st.st_ino == inode && st.st_mtim.tv_sec == changed.tv_sec && st.st_mtim.tv_nsec == changed.tv_nsec) return;
	FILE *f = fopen(path, "r");
	if (!f) fail(path);
	inode = st.st_ino, changed = st.st_mtim, count = 0;
	while (count < LINES && fgets(lines[count].text, sizeof lines[0].text, f)) {
		char *line = lines[count].text;
		line[strcspn(line, "\n")] = 0;
		if (!*line) continue;
		if (strncmp(line, "gpus ", 5) && strncmp(line, "return ", 7) && strncmp(line, "hang ", 5) && strncmp(line, "gpu ", 4) && strncmp(line, "xid ", 4) && strncmp(line, "reload ", 7) && strncmp(line, "driver ", 7) && strncmp(line, "library ", 8)) fail(line);
		count++;
	}
	fclose(f);
}

// find returns what stands behind a prefix in the last line that has it.
static const char *find(const char *prefix) {
	const char *found = 0;
	size_t n = strlen(prefix);
	for (int i = 0; i < count; i++)
		if (!strncmp(lines[i].text, prefix, n) && (lines[i].text[n] == 0 || lines[i].text[n] == ' ')) found = lines[i].text + n + (lines[i].text[n] == ' ');
	return found;
}

static const char *of(int number, const char *rest) {
	char prefix[256];
	snprintf(prefix, sizeof prefix, "gpu %d %s", number, rest);
	return find(prefix);
}

static int rule(gpu *d, const char *verb, const char *call, const char **value) {
	char prefix[128];
	for (int i = 0; i < 2; i++) {
		snprintf(prefix, sizeof prefix, "%s %s", verb, i ? "*" : call);
		if ((*value = d ? of(d->number, prefix) : find(prefix))) return 1;
	}
	return 0;
}

static int was_set(gpu *d) {
	for (int i = 0; i < gifts; i++)
		if (given[i].gpu == d->number) return 1;
	return 0;
}

// enter is the begin of each call: it hangs, or says what the call answers.
static int enter(gpu *d, const char *call) {
	const char *value;
	pthread_mutex_lock(&lock);
	load();
	while (rule(d, "hang", call, &value) || (d && was_set(d) && rule(d, "hang-when-set", call, &value))) {
		pthread_mutex_unlock(&lock);
		usleep(2000);
		pthread_mutex_lock(&lock);
		load();
	}
	int ret = SUCCESS;
	if (d && of(d->number, "gone")) ret = LOST;
	else if (rule(d, "return", call, &value)) ret = atoi(value);
	else if (!inits && strncmp(call, "nvmlInit", 8)) ret = UNINITIALIZED;
	pthread_mutex_unlock(&lock);
	return ret;
}

// number is a value of a GPU: as it was set, as the file says, or otherwise.
static u64 number(gpu *d, const char *key, u64 otherwise) {
	char name[96];
	snprintf(name, sizeof name, "set %s", key);
	pthread_mutex_lock(&lock);
	const char *v = of(d->number, name), *load = find("reload");
	u64 n = v ? strtoull(v, 0, 10) : otherwise;
	if (load && atoi(load) != loaded) loaded = atoi(load), gifts = 0;
	for (int i = 0; i < gifts; i++)
		if (given[i].gpu == d->number && !strcmp(given[i].key, key)) n = given[i].value;
	pthread_mutex_unlock(&lock);
	return n;
}

// fails is what the call answers that gives a value.
static int fails(gpu *d, const char *key) {
	char name[96];
	snprintf(name, sizeof name, "fails %s", key);
	pthread_mutex_lock(&lock);
	const char *v = of(d->number, name);
	int ret = v ? atoi(v) : SUCCESS;
	pthread_mutex_unlock(&lock);
	return ret;
}

static void give(gpu *d, const char *key, u64 value) {
	char name[96];
	snprintf(name, sizeof name, "stuck %s", key);
	pthread_mutex_lock(&lock);
	if (!of(d->number, name)) {
		int i = 0;
		while (i < gifts && (given[i].gpu != d->number || strcmp(given[i].key, key))) i++;
		if (i == 256) fail("more than 256 values were set");
		given[i].gpu = d->number, given[i].value = value;
		snprintf(given[i].key, sizeof given[i].key, "%s", key);
		if (i == gifts) gifts++;
	}
	pthread_mutex_unlock(&lock);
}

static void word(gpu *d, const char *key, char *out, u32 size, const char *otherwise) {
	char name[64];
	snprintf(name, sizeof name, "set %s", key);
	pthread_mutex_lock(&lock);
	const char *v = of(d->number, name);
	snprintf(out, size, "%s", v ? v : otherwise);
	pthread_mutex_unlock(&lock);
}

#define ENTER(d) do { int ret_ = enter(d, __func__); if (ret_) return ret_; } while (0)
#define KNOWS(d, key) do { int ret_ = fails(d, key); if (ret_) return ret_; } while (0)
// NUMBER is a call that gives one number of a GPU.
#define NUMBER(name, type, key, otherwise) int name(gpu *d, type *out) { ENTER(d); KNOWS(d, key); *out = (type)number(d, key, otherwise); return SUCCESS; }
// CHOSEN gives one of several, which the second parameter chooses.
#define CHOSEN(name, type, key, otherwise) \
	int name(gpu *d, u32 which, type *out) { \
		char k[64]; \
		ENTER(d); \
		snprintf(k, sizeof k, "%s-%u", key, which); \
		KNOWS(d, k); \
		*out = (type)number(d, k, otherwise); \
		return SUCCESS; \
	}
#define PAIR(name, key1, otherwise1, key2, otherwise2) int name(gpu *d, u32 *a, u32 *b) { ENTER(d); KNOWS(d, key1); *a = (u32)number(d, key1, otherwise1), *b = (u32)number(d, key2, otherwise2); return SUCCESS; }
#define WORD(name, key, otherwise) int name(gpu *d, char *out, u32 size) { char v[96]; ENTER(d); KNOWS(d, key); snprintf(v, sizeof v, otherwise, d->number); word(d, key, out, size, v); return SUCCESS; }

int nvmlInit_v2(void) {
	ENTER(0);
	pthread_mutex_lock(&lock);
	if (!inits++) {
		mark(1);
		const char *v = find("gpus");
		int all = v ? atoi(v) : 8;
		known = 0;
		for (int i = 0; i < all && i < GPUS; i++) {
			boards[i].number = i;
			if (!of(i, "gone")) listed[known++] = &boards[i];
		}
	}
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlShutdown(void) {
	ENTER(0);
	pthread_mutex_lock(&lock);
	if (inits && !--inits) mark(0);
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}
const char *nvmlErrorString(int code) { return code ? "an error of the stub" : "Success"; }
static int system_word(const char *call, const char *key, char *out, u32 size, const char *otherwise) {
	int ret = enter(0, call);
	if (ret) return ret;
	pthread_mutex_lock(&lock);
	const char *v = find(key);
	snprintf(out, size, "%s", v ? v : otherwise);
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}
int nvmlSystemGetDriverVersion(char *out, u32 size) { return system_word(__func__, "driver", out, size, "570.124.06"); }
int nvmlSystemGetNVMLVersion(char *out, u32 size) { return system_word(__func__, "library", out, size, "12.570.124.06"); }
int nvmlDeviceGetCount_v2(u32 *out) { ENTER(0); *out = known; return SUCCESS; }
int nvmlDeviceGetCount(u32 *out) { return nvmlDeviceGetCount_v2(out); }
int nvmlDeviceGetHandleByIndex_v2(u32 i, gpu **out) {
	ENTER(0);
	if (i >= (u32)known) return INVALID;
	int ret = enter(listed[i], __func__);
	*out = listed[i];
	return ret;
}
int nvmlDeviceGetHandleByIndex(u32 i, gpu **out) { return nvmlDeviceGetHandleByIndex_v2(i, out); }

WORD(nvmlDeviceGetUUID, "uuid", "GPU-5f1c6d1e-0000-4a3b-8c11-%012x")
#ifndef OLD
static int instance(gpu *d, u32 *id, char *profile);
#endif
int nvmlDeviceGetName(gpu *d, char *out, u32 size) {
	char name[80] = "NVIDIA H100 80GB HBM3";
	ENTER(d);
#ifndef OLD
	char profile[32];
	u32 id;
	if (d->number >= 1000 && !instance(d, &id, profile)) snprintf(name, sizeof name, "NVIDIA H100 80GB HBM3 MIG %s", profile);
#endif
	word(d, "product", out, size, name);
	return SUCCESS;
}
WORD(nvmlDeviceGetSerial, "serial", "165022300%04d")
WORD(nvmlDeviceGetVbiosVersion, "vbios", "96.00.89.00.%02d")
WORD(nvmlDeviceGetInforomImageVersion, "inforom", "G520.0200.00.%02d")
int nvmlDeviceGetPciInfo_v3(gpu *d, pci_info *out) {
	char otherwise[32];
	ENTER(d);
	memset(out, 0, sizeof *out);
	snprintf(otherwise, sizeof otherwise, "00000000:%02X:00.0", 0x1b + 0x11 * d->number);
	word(d, "pci", out->bus_id, sizeof out->bus_id, otherwise);
	return SUCCESS;
}
int nvmlDeviceGetPciInfo_v2(gpu *d, pci_info *out) { return nvmlDeviceGetPciInfo_v3(d, out); }
int nvmlDeviceGetPciInfo(gpu *d, pci_info *out) { return nvmlDeviceGetPciInfo_v3(d, out); }

CHOSEN(nvmlDeviceGetTemperature, u32, "temperature", 36)
CHOSEN(nvmlDeviceGetTemperatureThreshold, u32, "threshold", 87 + which)
NUMBER(nvmlDeviceGetPowerUsage, u32, "power", 71250)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, u32, "power-limit", 700000)
NUMBER(nvmlDeviceGetPowerManagementLimit, u32, "power-limit-set", 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, u32, "power-limit-default", 700000)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power-limit-min", 200000, "power-limit-max", 700000)
CHOSEN(nvmlDeviceGetClockInfo, u32, "clock", 1980 - which)
CHOSEN(nvmlDeviceGetMaxClockInfo, u32, "clock-max", 1980)
CHOSEN(nvmlDeviceGetApplicationsClock, u32, "application-clock", 1980)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, "reasons", 1)
NUMBER(nvmlDeviceGetPerformanceState, u32, "performance-state", 0)
PAIR(nvmlDeviceGetUtilizationRates_, "utilization", 0, "memory-utilization", 0)
int nvmlDeviceGetUtilizationRates(gpu *d, u32 *out) { ENTER(d); return nvmlDeviceGetUtilizationRates_(d, out, out + 1); }
PAIR(nvmlDeviceGetEncoderUtilization, "encoder", 0, "period", 167000)
PAIR(nvmlDeviceGetDecoderUtilization, "decoder", 0, "period", 167000)
NUMBER(nvmlDeviceGetMinorNumber, u32, "minor-number", d->number)
NUMBER(nvmlDeviceGetPcieReplayCounter, u32, "pcie-replays", 0)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, u32, "pcie-generation", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, u32, "pcie-generation-max", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, u32, "pcie-width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, u32, "pcie-width-max", 16)
NUMBER(nvmlDeviceGetArchitecture, u32, "architecture", 9)
CHOSEN(nvmlDeviceGetNvLinkRemoteDeviceType, u32, "remote-type", 2)
NUMBER(nvmlDeviceGetPersistenceMode, u32, "persistence", 1)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, u32, "retired-pending", 0)
PAIR(nvmlDeviceGetEccMode, "ecc", 1, "ecc-next", 1)
int nvmlDeviceGetMemoryInfo(gpu *d, memory_info *out) {
	ENTER(d);
	out->used = number(d, "memory-used", 1ull << 30), out->total = number(d, "memory-total", 80ull << 30), out->free = out->total - out->used;
	return SUCCESS;
}
int nvmlDeviceGetViolationStatus(gpu *d, u32 policy, u64 *out) {
	char key[64];
	ENTER(d);
	snprintf(key, sizeof key, "violation-%u", policy);
	KNOWS(d, key);
	out[0] = 0, out[1] = number(d, key, 0);
	return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(gpu *d, u32 type, u32 counter, u64 *out) {
	char key[64];
	ENTER(d);
	snprintf(key, sizeof key, "ecc-%u-%u", type, counter);
	KNOWS(d, key);
	*out = number(d, key, 0);
	return SUCCESS;
}
int nvmlDeviceGetMemoryErrorCounter(gpu *d, u32 type, u32 counter, u32 place, u64 *out) {
	char key[64];
	ENTER(d);
	snprintf(key, sizeof key, "ecc-%u-%u-%u", type, counter, place);
	KNOWS(d, key);
	u64 none = ~0ull;
	if ((*out = number(d, key, none)) != none) return SUCCESS;
	if (place != 2 && place != 7) return UNSUPPORTED; // Hopper tells memory and SRAM
	*out = 0;
	return SUCCESS;
}
int nvmlDeviceGetRetiredPages(gpu *d, u32 cause, u32 *n, u64 *out) {
	char key[64];
	ENTER(d);
	snprintf(key, sizeof key, "retired-%u", cause);
	KNOWS(d, key);
	u32 have = (u32)number(d, key, 0), room = *n;
	*n = have;
	if (room < have) return SMALL;
	memset(out, 0, have * sizeof *out);
	return SUCCESS;
}
CHOSEN(nvmlDeviceGetNvLinkState, u32, "nvlink", 1)
int nvmlDeviceGetNvLinkErrorCounter(gpu *d, u32 link, u32 counter, u64 *out) {
	char key[64];
	ENTER(d);
	if (link >= number(d, "nvlinks", 18)) return INVALID;
	snprintf(key, sizeof key, "nvlink-%u-%u", link, counter);
	KNOWS(d, key);
	*out = number(d, key, 0);
	return SUCCESS;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu *d, u32 link, pci_info *out) {
	ENTER(d);
	if (link >= number(d, "nvlinks", 18)) return INVALID;
	char key[64];
	snprintf(key, sizeof key, "remote-%u", link);
	KNOWS(d, key);
	memset(out, 0, sizeof *out);
	snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 5 + link / 5);
	return SUCCESS;
}
int nvmlDeviceGetNvLinkRemotePciInfo(gpu *d, u32 link, pci_info *out) { return nvmlDeviceGetNvLinkRemotePciInfo_v2(d, link, out); }
int nvmlDeviceGetFieldValues(gpu *d, int n, field_value *v) {
	ENTER(d);
	for (int i = 0; i < n; i++) {
		char key[64];
		if (v[i].field > 200 && v[i].field < 223) snprintf(key, sizeof key, "field-%u-%u", v[i].field, v[i].scope); // of a link
		else snprintf(key, sizeof key, "field-%u", v[i].field);
		u64 none = ~0ull, x = number(d, key, v[i].field == 82 ? 40 : v[i].field == 230 ? 0 : none); // the temperature of memory, and what the driver wants done
		v[i].ret = fails(d, key);
		if (!v[i].ret && x == none) v[i].ret = UNSUPPORTED;
		snprintf(key, sizeof key, "type-%u", v[i].field);
		v[i].type = (u32)number(d, key, v[i].field == 82 || v[i].field == 230 ? 1 : 3), v[i].value = x;
	}
	return SUCCESS;
}

int nvmlDeviceSetPowerManagementLimit(gpu *d, u32 mw) {
	ENTER(d);
	char name[600];
	snprintf(name, sizeof name, "%s.set", getenv("AUSPEX_NVML_STUB"));
	FILE *f = fopen(name, "a");
	if (f) { fprintf(f, "gpu %d %u\n", d->number, mw); fclose(f); }
	give(d, "power-limit-set", mw);
	give(d, "power-limit", mw);
	return SUCCESS;
}
int nvmlDeviceSetApplicationsClocks(gpu *d, u32 memory, u32 sm) {
	ENTER(d);
	give(d, "application-clock-2", memory), give(d, "application-clock-1", sm);
	return SUCCESS;
}
int nvmlDeviceSetPersistenceMode(gpu *d, u32 mode) { ENTER(d); give(d, "persistence", mode); return SUCCESS; }
int nvmlDeviceSetEccMode(gpu *d, u32 mode) { ENTER(d); give(d, "ecc-next", mode); return SUCCESS; }
#ifndef OLD
int nvmlDeviceValidateInforom(gpu *d) { ENTER(d); return (int)number(d, "inforom", SUCCESS); }
int nvmlDeviceSetMigMode(gpu *d, u32 mode, int *activation) { ENTER(d); give(d, "mig-next", mode); *activation = SUCCESS; return SUCCESS; }
#endif

// processes lists those of a GPU.
static int processes(gpu *d, u32 *n, process_info *out) {
	char prefix[64];
	u32 have = 0, room = *n;
	snprintf(prefix, sizeof prefix, "gpu %d process ", d->number);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < count; i++)
		if (!strncmp(lines[i].text, prefix, strlen(prefix))) {
			u64 pid = 0, mib = 0;
			u32 id = ~0u;
			sscanf(lines[i].text + strlen(prefix), "%llu %llu %u", &pid, &mib, &id);
			if (have < room) out[have] = (process_info){(u32)pid, mib << 20, id, id == ~0u ? id : 0};
			have++;
		}
	pthread_mutex_unlock(&lock);
	*n = have;
	return room < have ? SMALL : SUCCESS;
}

#ifdef OLD
int nvmlDeviceGetComputeRunningProcesses(gpu *d, u32 *n, void *out) {
	ENTER(d);
	process_info full[64];
	u32 room = *n, have = 64;
	processes(d, &have, full);
	*n = have;
	if (room < have) return SMALL;
	for (u32 i = 0; i < have; i++) ((struct { u32 pid; u64 used; } *)out)[i].pid = full[i].pid, ((struct { u32 pid; u64 used; } *)out)[i].used = full[i].used;
	return SUCCESS;
}
#else
int nvmlDeviceGetComputeRunningProcesses_v3(gpu *d, u32 *n, process_info *out) { ENTER(d); return processes(d, n, out); }
int nvmlDeviceGetComputeRunningProcesses_v2(gpu *d, u32 *n, process_info *out) { ENTER(d); return processes(d, n, out); }
int nvmlDeviceGetComputeRunningProcesses(gpu *d, u32 *n, process_info *out) { ENTER(d); return processes(d, n, out); }
NUMBER(nvmlDeviceGetTotalEnergyConsumption, u64, "energy", 1234567)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, "reasons", 1)
int nvmlDeviceGetMemoryInfo_v2(gpu *d, memory_info_v2 *out) {
	ENTER(d);
	if (out->version != (sizeof *out | 2u << 24)) return 25;
	out->used = number(d, "memory-used", 1ull << 30), out->total = number(d, "memory-total", 80ull << 30), out->reserved = number(d, "memory-reserved", 600ull << 20), out->free = out->total - out->used - out->reserved;
	return SUCCESS;
}
int nvmlDeviceGetRemappedRows(gpu *d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
	ENTER(d);
	KNOWS(d, "remapped");
	*corrected = (u32)number(d, "remapped", 0), *uncorrected = (u32)number(d, "remapped-uncorrected", 0);
	*pending = (u32)number(d, "remap-pending", 0), *failed = (u32)number(d, "remap-failed", 0);
	return SUCCESS;
}
int nvmlDeviceGetRowRemapperHistogram(gpu *d, u32 *out) {
	ENTER(d);
	KNOWS(d, "banks-0");
	for (u32 i = 0; i < 5; i++) {
		char key[64];
		snprintf(key, sizeof key, "banks-%u", i);
		out[i] = (u32)number(d, key, i ? 0 : 640);
	}
	return SUCCESS;
}
// The structure of errors of SRAM is 104 bytes (nvml.h, nvmlEccSramErrorStatus_v1_t), its last word whether they are too many.
int nvmlDeviceGetSramEccErrorStatus(gpu *d, u32 *out) {
	ENTER(d);
	KNOWS(d, "sram-exceeded");
	if (out[0] != (104 | 1u << 24)) return 25;
	memset(out + 1, 0, 100);
	out[24] = (u32)number(d, "sram-exceeded", 0);
	return SUCCESS;
}
int nvmlDeviceGetRepairStatus(gpu *d, u32 *out) {
	ENTER(d);
	KNOWS(d, "channel-repair");
	if (out[0] != (12 | 1u << 24)) return 25;
	out[1] = (u32)number(d, "channel-repair", 0), out[2] = (u32)number(d, "tpc-repair", 0);
	return SUCCESS;
}
// A GPU is in a fabric of one server, as an HGX H100, unless the file says otherwise. The words fabric-cluster,
// of 32 digits, and fabric-version, the newest structure that the driver knows, belong to it.
static void fabric(gpu *d, char *cluster, u32 *status, u32 *clique, unsigned char *state) {
	char digits[64];
	word(d, "fabric-cluster", digits, sizeof digits, "");
	memset(cluster, 0, 16);
	for (int i = 0; i < 16 && strlen(digits) >= 32; i++) {
		u32 octet;
		sscanf(digits + 2 * i, "%2x", &octet);
		cluster[i] = (char)octet;
	}
	*status = (u32)number(d, "fabric-status", 0), *clique = (u32)number(d, "fabric-clique", 0), *state = (unsigned char)number(d, "fabric-state", 3);
}
typedef struct { char cluster[16]; u32 status, clique; unsigned char state; } fabric_info;
typedef struct { u32 version; char cluster[16]; u32 status, clique; unsigned char state; u32 mask; } fabric_info_v2;
typedef struct { u32 version; char cluster[16]; u32 status, clique; unsigned char state; u32 mask; unsigned char summary; } fabric_info_v3;
_Static_assert(sizeof(fabric_info) == 28 && sizeof(fabric_info_v2) == 36 && sizeof(fabric_info_v3) == 40, "ABI of NVML");
int nvmlDeviceGetGpuFabricInfo(gpu *d, fabric_info *out) {
	ENTER(d);
	fabric(d, out->cluster, &out->status, &out->clique, &out->state);
	return SUCCESS;
}
int nvmlDeviceGetGpuFabricInfoV(gpu *d, fabric_info_v3 *out) {
	ENTER(d);
	u32 version = out->version >> 24, size = version == 2 ? sizeof(fabric_info_v2) : sizeof *out;
	KNOWS(d, "fabric-state");
	if (version > number(d, "fabric-version", 3) || out->version != (size | version << 24)) return 25;
	fabric(d, out->cluster, &out->status, &out->clique, &out->state);
	out->mask = (u32)number(d, "fabric-health", 0);
	if (version == 3) out->summary = (unsigned char)number(d, "fabric-summary", 0);
	return SUCCESS;
}
PAIR(nvmlDeviceGetMigMode, "mig", 0, "mig-next", 0)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, u32, "mig-most", 7)

// instance reads the line of a MIG device.
static int instance(gpu *d, u32 *id, char *profile) {
	char rest[32];
	snprintf(rest, sizeof rest, "mig %d", (d->number - 1000) % 16);
	pthread_mutex_lock(&lock);
	const char *v = of((d->number - 1000) / 16, rest);
	int n = v ? sscanf(v, "%u %31s", id, profile) : 0;
	pthread_mutex_unlock(&lock);
	return n == 2 ? SUCCESS : 6; // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetMigDeviceHandleByIndex(gpu *d, u32 i, gpu **out) {
	static gpu parts[GPUS * 16];
	u32 id;
	char profile[32];
	ENTER(d);
	gpu *part = &parts[d->number * 16 + (int)i % 16];
	part->number = 1000 + 16 * d->number + (int)i;
	*out = part;
	return instance(part, &id, profile);
}
int nvmlDeviceGetGpuInstanceId(gpu *d, u32 *out) {
	char profile[32];
	ENTER(d);
	return d->number < 1000 ? INVALID : instance(d, out, profile);
}
#endif

typedef struct { u64 gpus; long long serial; } event_set;

// xid finds the first XID after a serial number.
static int xid(long long after, u64 gpus, long long *n, int *board, int *code) {
	for (int i = 0; i < count; i++)
		if (sscanf(lines[i].text, "xid %lld %d %d", n, board, code) == 3 && *n > after && *board < GPUS && gpus >> *board & 1) return 1;
	return 0;
}

int nvmlEventSetCreate(event_set **out) {
	int board, code;
	ENTER(0);
	*out = calloc(1, sizeof **out);
	pthread_mutex_lock(&lock);
	for (long long n; xid((*out)->serial, ~0ull, &n, &board, &code);) (*out)->serial = n;
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}
int nvmlEventSetFree(event_set *set) { free(set); return SUCCESS; }
int nvmlDeviceRegisterEvents(gpu *d, u64 types, event_set *set) {
	ENTER(d);
	if (types & 8) set->gpus |= 1ull << d->number;
	return SUCCESS;
}
int nvmlEventSetWait_v2(event_set *set, event_data *out, u32 ms) {
	for (u32 waited = 0;; waited += 100) {
		ENTER(0);
		pthread_mutex_lock(&lock);
		long long n;
		int board, code;
		if (xid(set->serial, set->gpus, &n, &board, &code)) {
			set->serial = n;
			*out = (event_data){&boards[board], 8, (u64)code, ~0u, ~0u};
			pthread_mutex_unlock(&lock);
			return SUCCESS;
		}
		pthread_mutex_unlock(&lock);
		if (waited >= ms) return TIMEOUT;
		usleep(100000);
	}
}
int nvmlEventSetWait(event_set *set, event_data *out, u32 ms) { return nvmlEventSetWait_v2(set, out, ms); }
