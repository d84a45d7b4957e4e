/* window.h - where the window of address space is: the one fact that free() asks for every pointer. */
#ifndef HAK_MEMORY_WINDOW_H
#define HAK_MEMORY_WINDOW_H

#include "base/attr.h"

struct hak_window {
    uintptr_t base;
    size_t bytes;      /* 0 before start-up: every pointer is outside */
    uintptr_t records; /* of the first granule; they grow downwards */
};
extern __attribute__((visibility("hidden"))) struct hak_window hak_window;

#endif
