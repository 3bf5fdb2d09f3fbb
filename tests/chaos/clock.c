/* The wall clock as the processes of a job see it, shifted by a number of seconds. The file named by CHAOS_CLOCK has that
   number. The file is mapped, so that all processes see a jump at once. Monotonic clocks are not changed, as on a machine
   whose clock is set. A wait until a wall clock time uses the kernel's clock, so the time is converted back; a jump
   neither ends such a wait nor extends it. Preloaded by tests/chaos/clock.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t right = 0, *off = &right;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("CHAOS_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof right, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) off = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *off;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed && now) now->tv_sec += *off;
    return failed;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept) *kept = now.tv_sec;
    return now.tv_sec;
}

/* Only the condition variable knows its clock. A monotonic time counts from the start of the machine, so it is small. */
static struct timespec kernels(const struct timespec *until) {
    struct timespec at = *until;
    if (at.tv_sec > 1000000000) at.tv_sec -= *off;
    return at;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait) wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    struct timespec at = kernels(until);
    return wait(condition, mutex, &at);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    static int (*wait)(cnd_t *, mtx_t *, const struct timespec *);
    if (!wait) wait = dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec at = kernels(until);
    return wait(condition, mutex, &at);
}
