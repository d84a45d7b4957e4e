/* handler_call.h - call a function of the program and learn whether it threw, without a C++ runtime of our own. */
#ifndef HAK_FRONT_HANDLER_CALL_H
#define HAK_FRONT_HANDLER_CALL_H

#include "base/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* False when the function threw: the exception is caught and gone. */
__attribute__((visibility("hidden"))) bool hak_handler_call(void (*function)(void *), void *argument);

#ifdef __cplusplus
}
#endif
#endif
