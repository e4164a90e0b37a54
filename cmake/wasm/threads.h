/* Stands in for C's <threads.h>, which a libc without threads lacks. */
#define thread_local
