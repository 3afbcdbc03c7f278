// Included before everything else in engines for wheels: keeps a C library of 2023 from being needed.
// The symbols below got new versions in glibc 2.30 to 2.34; wheels of PyTorch ask for 2.28.

#include <features.h>
#include <bits/c++config.h>

// Waits by the monotonic clock are converted to the clock of the system.
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT

// Shared pointers always count with atomic instructions.
extern "C" {
extern char __libc_single_threaded;
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}

__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
