// A library with the symbols of libcuda.so.1 that the agent calls, over memory of this machine: a text
// file, which the environment variable AUSPEX_CUDA_STUB names, says how it behaves. It is read anew at
// each call. A line of it is one of
//
//	free MIB                how much memory of a GPU is free; 320 without such a line
//	units N                 how many multiprocessors a GPU has; 4
//	error CALL CODE         what a call answers
//	hang CALL               such a call does not return while the file says so
//	die CALL                such a call ends the process
//	wrong WORD BITS         the word of memory, counted over all that was taken, reads with these bits (hex) turned over
//	miscompute UNIT         a multiprocessor computes something else
//	asleep UNIT             a multiprocessor computes nothing
//
// Each cuInit adds a line to the file with .used behind its name. What the kernels do is written here anew.
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECES = 64, UNITS = 512, MEMORY = 2, NODEVICE = 101, NOTFOUND = 500 };

static struct { uint64_t at, bytes; } taken[PIECES];
static int pieces;
static char kernel_fill, kernel_check, kernel_burst;

// says finds the line that begins with words, and returns what follows; NULL is none.
static const char *says(const char *words) {
	static char line[256];
	const char *name = getenv("AUSPEX_CUDA_STUB");
	FILE *f = name ? fopen(name, "r") : NULL;
	size_t n = strlen(words);
	if (!f) return NULL;
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, words, n) && (line[n] == ' ' || !line[n])) { fclose(f); return line + n; }
	}
	fclose(f);
	return NULL;
}

static long number(const char *words, long otherwise) {
	const char *rest = says(words);
	return rest ? strtol(rest, NULL, 0) : otherwise;
}

// call is the begin of each: what it is to answer, 0 to go on.
static int call(const char *name) {
	char words[80];
	snprintf(words, sizeof words, "hang %s", name);
	while (says(words)) usleep(5000);
	snprintf(words, sizeof words, "die %s", name);
	if (says(words)) { fprintf(stderr, "%s: Xid\n", name); abort(); }
	snprintf(words, sizeof words, "error %s", name);
	return (int)number(words, 0);
}
#define CALL do { int c = call(__func__); if (c) return c; } while (0)

static int units(void) { return (int)number("units", 4); }

int cuInit(unsigned flags) {
	char name[600];
	snprintf(name, sizeof name, "%s.used", getenv("AUSPEX_CUDA_STUB"));
	FILE *f = fopen(name, "a");
	if (f) { fprintf(f, "validation\n"); fclose(f); }
	(void)flags;
	CALL;
	return 0;
}
int cuDeviceGetByPCIBusId(int *device, const char *pci) { CALL; *device = 0; return strlen(pci) < 12 ? NODEVICE : 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { CALL; *value = attribute == 16 && device == 0 ? units() : 0; return 0; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { CALL; (void)device; (void)flags; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { CALL; (void)device; *context = &pieces; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { CALL; (void)device; return 0; }
int cuCtxSetCurrent(void *context) { CALL; return context == &pieces ? 0 : 201; }
int cuModuleLoadData(void **module, const char *text) { CALL; *module = &pieces; return strstr(text, ".visible .entry burst") ? 0 : 218; }
int cuModuleGetFunction(void **f, void *module, const char *name) {
	CALL;
	(void)module;
	*f = !strcmp(name, "fill") ? &kernel_fill : !strcmp(name, "check") ? &kernel_check : !strcmp(name, "burst") ? &kernel_burst : NULL;
	return *f ? 0 : NOTFOUND;
}

static uint64_t used(void) {
	uint64_t sum = 0;
	for (int i = 0; i < pieces; i++) sum += taken[i].bytes;
	return sum;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) {
	CALL;
	*total = (size_t)number("free", 320) << 20;
	*free = *total - used();
	return 0;
}
int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
	CALL;
	if (pieces == PIECES || used() + bytes > (uint64_t)number("free", 320) << 20) return MEMORY;
	void *p = malloc(bytes);
	if (!p) return MEMORY;
	*at = (uint64_t)(uintptr_t)p;
	taken[pieces].at = *at;
	taken[pieces++].bytes = bytes;
	return 0;
}
int cuMemFree_v2(uint64_t at) {
	CALL;
	for (int i = 0; i < pieces; i++)
		if (taken[i].at == at) { free((void *)(uintptr_t)at); taken[i] = taken[--pieces]; return 0; }
	return 1;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { CALL; memcpy((void *)(uintptr_t)to, from, bytes); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { CALL; memcpy(to, (void *)(uintptr_t)from, bytes); return 0; }
int cuCtxSynchronize(void) { CALL; return 0; }
int cuGetErrorName(int code, const char **text) { *text = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = code == 802 ? "system not yet initialized" : "of the stub"; return 0; }

// before is how many words were taken before a piece: the first piece of all is what kernels count in.
static uint64_t before(uint64_t at) {
	uint64_t sum = 0;
	for (int i = 1; i < pieces && taken[i].at != at; i++) sum += taken[i].bytes / 8;
	return sum;
}

static void sweep(void **p, int checks) {
	uint64_t at = *(uint64_t *)p[0], words = *(uint64_t *)p[1], first = *(uint64_t *)p[2], factor = *(uint64_t *)p[3], mask = *(uint64_t *)p[4];
	uint64_t *memory = (uint64_t *)(uintptr_t)at, *out = checks ? (uint64_t *)(uintptr_t)*(uint64_t *)p[5] : NULL;
	const char *rest = says("wrong");
	uint64_t bad = UINT64_MAX, turned = 0;
	if (rest) { char *next; bad = strtoull(rest, &next, 0); turned = strtoull(next, NULL, 16); }
	uint64_t from = before(at);
	for (uint64_t i = 0; i < words; i++) {
		uint64_t want = (i * factor + first) ^ mask;
		if (!checks) { memory[i] = want; continue; }
		uint64_t have = memory[i] ^ (from + i == bad ? turned : 0);
		if (have == want) continue;
		out[0]++;
		if (i < out[1]) out[1] = i;
		out[2] |= have ^ want;
	}
}

static void burst(void **p) {
	unsigned n = *(unsigned *)p[0], u = 1, eu = *(unsigned *)p[6];
	float r = *(float *)p[1], x[4] = {.1f, .2f, .3f, .4f};
	uint64_t *out = (uint64_t *)(uintptr_t)*(uint64_t *)p[7];
	for (unsigned i = 0; i < n; i++) {
		for (int j = 0; j < 4; j++) x[j] = fmaf(-x[j], x[j], x[j]) * r;
		u = u * 1664525u + 1013904223u;
	}
	long bad = number("miscompute", -1), asleep = number("asleep", -1);
	for (int unit = 0; unit < units() && unit < UNITS; unit++) {
		if (unit == asleep) continue;
		out[2 + unit / 64] |= 1ull << unit % 64;
		int wrong = u != eu || unit == bad;
		for (int j = 0; j < 4; j++) wrong = wrong || x[j] != *(float *)p[2 + j];
		if (wrong) { out[0] += 256; out[10 + unit / 64] |= 1ull << unit % 64; }
	}
}

int cuLaunchKernel(
	void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra
) {
	CALL;
	if (gx == 0 || gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1 || shared || stream || extra) return 1;
	if (f == &kernel_burst) burst(params);
	else sweep(params, f == &kernel_check);
	return 0;
}
