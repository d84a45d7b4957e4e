/* describe.h - what is known of an address: live or freed block, its size, its slab, not ours.
 *
 * Async-signal-safe: reads the tables only. False: the address is not of malloc's memory.
 */
#ifndef HAK_FRONT_DESCRIBE_H
#define HAK_FRONT_DESCRIBE_H

#include "base/text.h"

bool hak_describe_address(uintptr_t address, struct hak_text *text);

#endif
