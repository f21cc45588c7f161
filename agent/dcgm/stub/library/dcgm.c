// A library with the functions of libdcgm.so.4 that the agent calls, and a hostengine behind it that a text file describes:
// the environment variable AUSPEX_DCGM_STUB names it, and it is read anew whenever it changes. A line of it is one of
//
//	gpu ID UUID PCI                  a GPU, by DCGM's number
//	return CALL CODE                 what a call answers
//	hang CALL                        such a call does not return while the file says so
//	crash CALL                       such a call ends the process
//	down                             the hostengine is away
//	epoch N                          with another N it was started anew: handles of before are not valid
//	field ID NUMBER VALUE            the value of a field of a GPU; blank, status CODE and stale are such as well
//	noprof ID                        the GPU has no profiling fields
//	part KIND ID                     a part that is no GPU
//	incident KIND ID SYSTEM HEALTH CODE TEXT   what the health watches find
//	policy MASK                      what somebody else has set, with limits of 77
//	violate SERIAL ID CONDITION VALUE OTHER    a violation; each serial number is told once, to whoever registered before
//	test NAME KIND ID RESULT TEXT    what a diagnostic finds
//	slow MS                          how long a diagnostic takes
//
// What was called stands in the file with .calls behind the name of the description, a line each. Structures and codes
// are those of the headers.
#define _GNU_SOURCE
#include "dcgm_agent.h"
#include "dcgm_errors.h"
#include "dcgm_fields.h"
#include "dcgm_structs.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 512, GROUPS = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char text[700]; } lines[LINES];
static int count, running, stopped;
static struct timespec changed;
static ino_t inode;
static dcgmPolicy_t policy;
static struct { unsigned gpus[DCGM_MAX_NUM_DEVICES]; int n; dcgmGroupEntityPair_t parts[64]; int others; } groups[GROUPS];
static int group_count;
static unsigned short watched[64];
static int watching, health;

static void fail(const char *line) {
	fprintf(stderr, "dcgm stub: cannot read the line %s\n", line);
	abort();
}

static const char *path(void) {
	const char *p = getenv("AUSPEX_DCGM_STUB");
	if (!p) fail("AUSPEX_DCGM_STUB names no file");
	return p;
}

// load reads the file if it is another than before; the caller holds the lock.
static void load(void) {
	struct stat st;
	if (stat(path(), &st)) fail("AUSPEX_DCGM_STUB names no file");
	if (st.st_ino == inode && st.st_mtim.tv_sec == changed.tv_sec && st.st_mtim.tv_nsec == changed.tv_nsec) return;
	FILE *f = fopen(path(), "r");
	if (!f) fail(path());
	inode = st.st_ino, changed = st.st_mtim, count = 0;
	static const char *verbs[] = {"gpu ", "return ", "hang ", "crash ", "down", "epoch ", "field ", "noprof ", "part ", "incident ", "policy ", "violate ", "test ", "slow "};
	while (count < LINES && fgets(lines[count].text, sizeof lines[0].text, f)) {
		char *line = lines[count].text;
		line[strcspn(line, "\n")] = 0;
		if (!*line) continue;
		int known = 0;
		for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) known |= !strncmp(line, verbs[i], strlen(verbs[i]));
		if (!known) fail(line);
		count++;
	}
	fclose(f);
}

// find returns what stands behind a prefix in the last line that has it.
static const char *find(const char *format, ...) {
	char prefix[200];
	va_list args;
	va_start(args, format);
	vsnprintf(prefix, sizeof prefix, format, args);
	va_end(args);
	size_t n = strlen(prefix);
	const char *found = 0;
	for (int i = 0; i < count; i++)
		if (!strncmp(lines[i].text, prefix, n) && (lines[i].text[n] == 0 || lines[i].text[n] == ' ')) found = lines[i].text + n + (lines[i].text[n] == ' ');
	return found;
}

static int epoch(void) {
	const char *v = find("epoch");
	return v ? atoi(v) : 1;
}

static void note(const char *call) {
	char name[600], line[200];
	snprintf(name, sizeof name, "%s.calls", path());
	FILE *f = fopen(name, "a");
	if (!f) return;
	int n = snprintf(line, sizeof line, "%s\n", call);
	fwrite(line, 1, n, f);
	fclose(f);
}

// enter is the begin of each call: it hangs, ends the process, or says what the call answers. The handle is that of an epoch.
static dcgmReturn_t enter(dcgmHandle_t handle, const char *call) {
	const char *v;
	pthread_mutex_lock(&lock);
	load();
	note(call);
	while (find("hang %s", call)) {
		pthread_mutex_unlock(&lock);
		usleep(2000);
		pthread_mutex_lock(&lock);
		load();
	}
	if (find("crash %s", call)) _exit(139);
	dcgmReturn_t ret = DCGM_ST_OK;
	if ((v = find("return %s", call))) ret = atoi(v);
	else if (find("down") || (handle && (int)handle != epoch())) ret = DCGM_ST_CONNECTION_NOT_VALID;
	pthread_mutex_unlock(&lock);
	return ret;
}

#define ENTER(handle) do { dcgmReturn_t ret_ = enter(handle, __func__); if (ret_) return ret_; } while (0)

const char *errorString(dcgmReturn_t code) {
	switch (code) {
	case DCGM_ST_CONNECTION_NOT_VALID: return "the connection is not valid";
	case DCGM_ST_IN_USE: return "the resource is in use";
	case DCGM_ST_NOT_SUPPORTED: return "it is not supported";
	case DCGM_ST_REQUIRES_ROOT: return "the hostengine has to run as root";
	case DCGM_ST_MODULE_NOT_LOADED: return "its module is not loaded";
	case DCGM_ST_VER_MISMATCH: return "the version of a structure is another";
	case DCGM_ST_DIAG_ALREADY_RUNNING: return "a diagnostic runs already";
	case DCGM_ST_DIAG_STOPPED: return "the diagnostic was stopped";
	default: return code ? "an error of the stub" : "no error";
	}
}

dcgmReturn_t dcgmInit(void) { ENTER(0); return DCGM_ST_OK; }
dcgmReturn_t dcgmShutdown(void) { ENTER(0); return DCGM_ST_OK; }
dcgmReturn_t dcgmDisconnect(dcgmHandle_t handle) { ENTER(0); return DCGM_ST_OK; }
dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *params, dcgmHandle_t *handle) {
	ENTER(0);
	if (params->version != dcgmConnectV2Params_version2) return DCGM_ST_VER_MISMATCH;
	if (params->addressIsUnixSocket != (*address == '/')) return DCGM_ST_BADPARAM;
	pthread_mutex_lock(&lock);
	*handle = epoch();
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmHostengineVersionInfo(dcgmHandle_t handle, dcgmVersionInfo_t *out) {
	ENTER(handle);
	if (out->version != dcgmVersionInfo_version) return DCGM_ST_VER_MISMATCH;
	strcpy(out->rawBuildInfoString, "version:4.5.2;arch:x86_64;buildtype:Release");
	return DCGM_ST_OK;
}

// gpu finds the nth GPU.
static int gpu(int n, unsigned *id, char *uuid, char *pci) {
	for (int i = 0; i < count; i++)
		if (sscanf(lines[i].text, "gpu %u %63s %63s", id, uuid, pci) == 3 && !n--) return 1;
	return 0;
}
static int gpu_of(unsigned id, char *uuid, char *pci) {
	unsigned other;
	for (int i = 0; gpu(i, &other, uuid, pci); i++)
		if (other == id) return 1;
	return 0;
}

dcgmReturn_t dcgmGetAllSupportedDevices(dcgmHandle_t handle, unsigned int ids[DCGM_MAX_NUM_DEVICES], int *n) {
	char uuid[64], pci[64];
	ENTER(handle);
	pthread_mutex_lock(&lock);
	for (*n = 0; *n < DCGM_MAX_NUM_DEVICES && gpu(*n, &ids[*n], uuid, pci); (*n)++) {}
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}

static int is_watched(unsigned short id) {
	for (int i = 0; i < watching; i++)
		if (watched[i] == id) return 1;
	return 0;
}

// value gives one, as a hostengine does: ratios are doubles, and what there is not is a blank.
static void value(unsigned id, unsigned short field, dcgmFieldValue_v2 *out) {
	char uuid[64], pci[64];
	const char *v = find("field %u %u", id, field);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	out->ts = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
	out->status = DCGM_ST_OK;
	if (!gpu_of(id, uuid, pci)) { out->status = DCGM_ST_BADPARAM; return; }
	if (field == DCGM_FI_DEV_UUID || field == DCGM_FI_DEV_PCI_BUSID) {
		out->fieldType = DCGM_FT_STRING;
		strcpy(out->value.str, field == DCGM_FI_DEV_UUID ? uuid : pci);
		return;
	}
	int ratio = field < DCGM_FI_PROF_PCIE_TX_BYTES;
	out->fieldType = ratio ? DCGM_FT_DOUBLE : DCGM_FT_INT64;
	if (!is_watched(field)) { out->status = DCGM_ST_NOT_WATCHED; return; }
	if (v && !strncmp(v, "status ", 7)) { out->status = atoi(v + 7); return; }
	if (v && !strcmp(v, "stale")) out->ts = 12345, v = "7";
	int blank = !v || !strcmp(v, "blank");
	if (ratio) out->value.dbl = blank ? DCGM_FP64_NOT_SUPPORTED : atof(v);
	else out->value.i64 = blank ? DCGM_INT64_NOT_SUPPORTED : atoll(v);
}

dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t handle, dcgmGroupEntityPair_t entities[], unsigned int n, unsigned short fields[], unsigned int m, unsigned int flags, dcgmFieldValue_v2 values[]) {
	ENTER(handle);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < m; j++) {
			dcgmFieldValue_v2 *v = &values[i * m + j];
			v->version = dcgmFieldValue_version2, v->entityGroupId = entities[i].entityGroupId, v->entityId = entities[i].entityId, v->fieldId = fields[j];
			value(entities[i].entityId, fields[j], v);
		}
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmProfGetSupportedMetricGroups(dcgmHandle_t handle, dcgmProfGetMetricGroups_t *out) {
	ENTER(handle);
	if (out->version != dcgmProfGetMetricGroups_version) return DCGM_ST_VER_MISMATCH;
	pthread_mutex_lock(&lock);
	out->numMetricGroups = find("noprof %u", out->gpuId) ? 0 : 2;
	pthread_mutex_unlock(&lock);
	for (int g = 0; g < 2; g++) {
		out->metricGroups[g].majorId = g;
		out->metricGroups[g].numFieldIds = 0;
		for (int id = g ? 1007 : 1001; id <= (g ? 1016 : 1006); id++) out->metricGroups[g].fieldIds[out->metricGroups[g].numFieldIds++] = id;
	}
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGroupCreate(dcgmHandle_t handle, dcgmGroupType_t type, const char *name, dcgmGpuGrp_t *out) {
	ENTER(handle);
	pthread_mutex_lock(&lock);
	int g = group_count++;
	if (g < GROUPS) groups[g].n = groups[g].others = 0;
	pthread_mutex_unlock(&lock);
	if (g >= GROUPS || type != DCGM_GROUP_EMPTY) return DCGM_ST_MAX_LIMIT;
	*out = g + 2;
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t handle, dcgmGpuGrp_t group) { ENTER(handle); return DCGM_ST_OK; }
dcgmReturn_t dcgmGroupAddDevice(dcgmHandle_t handle, dcgmGpuGrp_t group, unsigned int id) {
	char uuid[64], pci[64];
	ENTER(handle);
	pthread_mutex_lock(&lock);
	int ok = gpu_of(id, uuid, pci);
	if (ok) groups[group - 2].gpus[groups[group - 2].n++] = id;
	pthread_mutex_unlock(&lock);
	return ok ? DCGM_ST_OK : DCGM_ST_BADPARAM;
}
dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgm_field_entity_group_t kind, dcgm_field_eid_t id) {
	if (kind == DCGM_FE_GPU) return dcgmGroupAddDevice(handle, group, id);
	ENTER(handle);
	pthread_mutex_lock(&lock);
	int ok = groups[group - 2].others < 64 && find("part %u %u", kind, id);
	if (ok) groups[group - 2].parts[groups[group - 2].others++] = (dcgmGroupEntityPair_t){kind, id};
	pthread_mutex_unlock(&lock);
	return ok ? DCGM_ST_OK : DCGM_ST_BADPARAM;
}
dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t handle, dcgm_field_entity_group_t kind, dcgm_field_eid_t *ids, int *n, unsigned int flags) {
	ENTER(handle);
	if (kind == DCGM_FE_CONNECTX) return DCGM_ST_BADPARAM; // as of a hostengine of before
	int room = *n;
	*n = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < count && *n < room; i++) {
		unsigned k, id;
		if (sscanf(lines[i].text, "part %u %u", &k, &id) == 2 && k == kind) ids[(*n)++] = id;
	}
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}
// member reports whether an entity, or the GPU of a link, is in a group.
static int member(dcgmGpuGrp_t group, unsigned kind, unsigned id) {
	if (kind == DCGM_FE_LINK) kind = id & 0xff, id >>= 24;
	for (int i = 0; kind == DCGM_FE_GPU && i < groups[group - 2].n; i++)
		if (groups[group - 2].gpus[i] == id) return 1;
	for (int i = 0; i < groups[group - 2].others; i++)
		if (groups[group - 2].parts[i].entityGroupId == kind && groups[group - 2].parts[i].entityId == id) return 1;
	return 0;
}
dcgmReturn_t dcgmGroupGetInfo(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmGroupInfo_t *out) {
	ENTER(handle);
	if (out->version != dcgmGroupInfo_version3) return DCGM_ST_VER_MISMATCH;
	out->count = groups[group - 2].n;
	for (unsigned i = 0; i < out->count; i++) out->entityList[i].entityGroupId = DCGM_FE_GPU, out->entityList[i].entityId = groups[group - 2].gpus[i];
	return DCGM_ST_OK;
}

static unsigned short chosen[64];
static int chosen_n;
dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t handle, int n, const unsigned short *ids, const char *name, dcgmFieldGrp_t *out) {
	ENTER(handle);
	chosen_n = n;
	memcpy(chosen, ids, n * sizeof *ids);
	*out = 1;
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t handle, dcgmFieldGrp_t group) { ENTER(handle); return DCGM_ST_OK; }
dcgmReturn_t dcgmWatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long every, double keep, int samples) {
	ENTER(handle);
	watching = chosen_n;
	memcpy(watched, chosen, sizeof watched);
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t handle, int wait) { ENTER(handle); return DCGM_ST_OK; }

dcgmReturn_t dcgmHealthSet(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthSystems_t systems) {
	ENTER(handle);
	health = systems;
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmHealthCheck(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthResponse_t *out) {
	ENTER(handle);
	if (out->version != dcgmHealthResponse_version5) return DCGM_ST_VER_MISMATCH;
	if (!health) return DCGM_ST_NOT_CONFIGURED;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < count; i++) {
		unsigned kind, id, system, result, code;
		int at = 0;
		if (sscanf(lines[i].text, "incident %u %u %x %u %u %n", &kind, &id, &system, &result, &code, &at) != 5 || !at || !member(group, kind, id)) continue;
		dcgmIncidentInfo_t *x = &out->incidents[out->incidentCount++];
		x->system = system, x->health = result, x->error.code = code, x->entityInfo.entityGroupId = kind, x->entityInfo.entityId = id;
		snprintf(x->error.msg, sizeof x->error.msg, "%s", lines[i].text + at);
		if (out->overallHealth < result) out->overallHealth = result;
	}
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmPolicyGet(dcgmHandle_t handle, dcgmGpuGrp_t group, int n, dcgmPolicy_t *out, dcgmStatus_t status) {
	ENTER(handle);
	pthread_mutex_lock(&lock);
	const char *v = find("policy");
	if (v && !policy.condition) {
		policy.condition = strtoul(v, 0, 0), policy.action = DCGM_POLICY_ACTION_GPURESET;
		for (int i = 0; i < DCGM_POLICY_COND_MAX; i++) policy.parms[i].tag = 1, policy.parms[i].val.llval = 77;
	}
	for (int i = 0; i < n; i++) {
		if (out[i].version != dcgmPolicy_version1) n = -1;
		else out[i] = policy, out[i].version = dcgmPolicy_version1;
	}
	pthread_mutex_unlock(&lock);
	return n < 0 ? DCGM_ST_VER_MISMATCH : DCGM_ST_OK;
}
dcgmReturn_t dcgmPolicySet(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicy_t *in, dcgmStatus_t status) {
	char line[200];
	ENTER(handle);
	if (in->version != dcgmPolicy_version1) return DCGM_ST_VER_MISMATCH;
	pthread_mutex_lock(&lock);
	policy = *in;
	snprintf(line, sizeof line, "policy %#x action %d pages %lld temperature %lld power %lld", in->condition, in->action, (long long)in->parms[2].val.llval, (long long)in->parms[3].val.llval, (long long)in->parms[4].val.llval);
	note(line);
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}

static struct { fpRecvUpdates call; uint64_t data; dcgmPolicyCondition_t conditions; long long serial; } listener;

static int violation(long long after, long long *n, dcgmPolicyCallbackResponse_t *out) {
	for (int i = 0; i < count; i++) {
		unsigned id, condition, v, other;
		if (sscanf(lines[i].text, "violate %lld %u %x %u %u", n, &id, &condition, &v, &other) != 5 || *n <= after) continue;
		long long now = (long long)time(0) * 1000000;
		*out = (dcgmPolicyCallbackResponse_t){.version = dcgmPolicyCallbackResponse_version2, .condition = condition, .gpuId = id};
		switch (condition) {
		case DCGM_POLICY_COND_DBE: out->val.dbe.timestamp = now, out->val.dbe.numerrors = v, out->val.dbe.location = other; break;
		case DCGM_POLICY_COND_PCI: out->val.pci.timestamp = now, out->val.pci.counter = v; break;
		case DCGM_POLICY_COND_MAX_PAGES_RETIRED: out->val.mpr.timestamp = now, out->val.mpr.sbepages = v, out->val.mpr.dbepages = other; break;
		case DCGM_POLICY_COND_THERMAL: out->val.thermal.timestamp = now, out->val.thermal.thermalViolation = v; break;
		case DCGM_POLICY_COND_POWER: out->val.power.timestamp = now, out->val.power.powerViolation = v; break;
		case DCGM_POLICY_COND_NVLINK: out->val.nvlink.timestamp = now, out->val.nvlink.counter = v, out->val.nvlink.fieldId = other; break;
		case DCGM_POLICY_COND_XID: out->val.xid.timestamp = now, out->val.xid.errnum = v; break;
		}
		return 1;
	}
	return 0;
}

static void *tell(void *unused) {
	for (;; usleep(5000)) {
		dcgmPolicyCallbackResponse_t r;
		long long n;
		pthread_mutex_lock(&lock);
		load();
		int some = violation(listener.serial, &n, &r);
		if (some) listener.serial = n;
		int wanted = some && (r.condition & listener.conditions) && (r.condition & policy.condition);
		pthread_mutex_unlock(&lock);
		if (wanted) listener.call(&r, listener.data);
	}
	return 0;
}

dcgmReturn_t dcgmPolicyRegister_v2(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicyCondition_t conditions, fpRecvUpdates call, uint64_t data) {
	ENTER(handle);
	pthread_mutex_lock(&lock);
	dcgmPolicyCallbackResponse_t r;
	long long n;
	while (violation(listener.serial, &n, &r)) listener.serial = n;
	listener.call = call, listener.data = data, listener.conditions = conditions;
	pthread_mutex_unlock(&lock);
	pthread_t thread;
	pthread_create(&thread, 0, tell, 0);
	pthread_detach(thread);
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmPolicyUnregister(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicyCondition_t conditions) { ENTER(handle); return DCGM_ST_OK; }

dcgmReturn_t dcgmRunDiagnostic(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmDiagnosticLevel_t level, dcgmDiagResponse_v12 *out) {
	char line[200];
	ENTER(handle);
	if (out->version != dcgmDiagResponse_version12) return DCGM_ST_VER_MISMATCH;
	pthread_mutex_lock(&lock);
	snprintf(line, sizeof line, "diagnostic of level %d on %d GPUs, the first is %u", level, groups[group - 2].n, groups[group - 2].gpus[0]);
	note(line);
	const char *v = find("slow");
	int left = v ? atoi(v) : 0;
	for (running = 1, stopped = 0; left > 0 && !stopped; left -= 5) {
		pthread_mutex_unlock(&lock);
		usleep(5000);
		pthread_mutex_lock(&lock);
	}
	running = 0;
	for (int i = 0; i < count && !stopped; i++) {
		char name[32];
		unsigned kind, id, result;
		int at = 0, t = 0;
		if (sscanf(lines[i].text, "test %31s %u %u %u %n", name, &kind, &id, &result, &at) != 4 || !at) continue;
		while (t < out->numTests && strcmp(out->tests[t].name, name)) t++;
		if (t == out->numTests) out->numTests++;
		strcpy(out->tests[t].name, name), strcpy(out->tests[t].pluginName, name);
		out->tests[t].result = result > out->tests[t].result ? result : out->tests[t].result;
		dcgmGroupEntityPair_t e = {kind, id};
		if (kind) out->results[out->numResults++] = (dcgmDiagEntityResult_v1){.entity = e, .result = result, .testId = t};
		const char *text = lines[i].text + at;
		if (*text && result == DCGM_DIAG_RESULT_FAIL) {
			dcgmDiagError_v1 *x = &out->errors[out->numErrors++];
			x->entity = e, x->testId = t, x->code = DCGM_FR_FAULTY_MEMORY;
			snprintf(x->msg, sizeof x->msg, "%s", text);
		} else if (*text) {
			dcgmDiagInfo_v1 *x = &out->info[out->numInfo++];
			x->entity = e, x->testId = t;
			snprintf(x->msg, sizeof x->msg, "%s", text);
		}
	}
	int ended = stopped;
	pthread_mutex_unlock(&lock);
	return ended ? DCGM_ST_DIAG_STOPPED : DCGM_ST_OK;
}
dcgmReturn_t dcgmStopDiagnostic(dcgmHandle_t handle) {
	ENTER(handle);
	pthread_mutex_lock(&lock);
	if (running) stopped = 1;
	pthread_mutex_unlock(&lock);
	return DCGM_ST_OK;
}
