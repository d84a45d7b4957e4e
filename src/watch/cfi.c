/* cfi.c - see cfi.h. Formats: DWARF 5, 6.4 (call frame instructions) and 2.5 (expressions); LSB 5.0, 10.6 (.eh_frame, .eh_frame_hdr).
 *
 * A frame may be anybody's: what lies above a coroutine's first function is no return address, or one of long ago with another
 * register beside it, and what such a frame leads to must not be read. So each word is looked for within the stack that the
 * thread is on, above its stack pointer, and each frame lies higher than the one before.
 *
 * Threads:   any, signal handlers too; nothing is kept, but for where glibc has its function, and the address that a crashed thread jumped to.
 * Trusted:   the tables of loaded objects. Where glibc has _dl_find_object (2.35), and the program is not static, they are found without a lock.
 * Rejected:  libgcc's unwinder, of which the library had a copy: it reads code where no object is, and the stack wherever a register
 *            points; programs of gevent and greenlet died of it. libunwind: a dependency; it asks the kernel of each page.
 */
#include "watch/cfi.h"

#include "base/atomic.h"
#include "os/descriptor.h"
#include "os/loaded.h"
#include "os/os.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

/* --- bytes --- */

struct bytes {
    const uint8_t *at, *end;
    bool is_bad; /* what was wanted went beyond the end, or is of a kind that is not known */
};

HAK_INLINE uint64_t fixed(struct bytes *bytes, size_t count) {
    uint64_t value = 0;
    if ((size_t)(bytes->end - bytes->at) < count) {
        bytes->is_bad = true;
        bytes->at = bytes->end;
        return 0;
    }
    memcpy(&value, bytes->at, count); /* little endian */
    bytes->at += count;
    return value;
}

static HAK_NOINLINE uint64_t uleb_long(struct bytes *bytes) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint64_t byte = fixed(bytes, 1);
        if (shift < 64) value |= (byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
}

HAK_INLINE uint64_t uleb(struct bytes *bytes) {
    if (HAK_LIKELY(bytes->at < bytes->end && *bytes->at < 0x80)) return *bytes->at++;
    return uleb_long(bytes);
}

static int64_t sleb(struct bytes *bytes) {
    uint64_t value = 0, byte;
    unsigned shift = 0;
    do {
        byte = fixed(bytes, 1);
        if (shift < 64) value |= (byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    if (byte & 0x40 && shift < 64) value |= ~UINT64_C(0) << shift;
    return (int64_t)value;
}

static int64_t extended(uint64_t value, size_t bytes) {
    unsigned shift = 64 - 8 * (unsigned)bytes;
    return (int64_t)(value << shift) >> shift;
}

enum { OMIT = 0xff, RELATIVE_TO_PLACE = 0x10, RELATIVE_TO_TABLE = 0x30, INDIRECT = 0x80 };

/* A number in one of the encodings; what it is relative to is the caller's affair, but for its own place. */
static uintptr_t encoded(struct bytes *bytes, unsigned encoding) {
    uintptr_t place = (uintptr_t)bytes->at, value;
    switch (encoding & 0x0f) {
    case 0x00: value = fixed(bytes, sizeof value); break;
    case 0x01: value = uleb(bytes); break;
    case 0x02: value = fixed(bytes, 2); break;
    case 0x03: value = fixed(bytes, 4); break;
    case 0x04: case 0x0c: value = fixed(bytes, 8); break;
    case 0x09: value = (uintptr_t)sleb(bytes); break;
    case 0x0a: value = (uintptr_t)extended(fixed(bytes, 2), 2); break;
    case 0x0b: value = (uintptr_t)extended(fixed(bytes, 4), 4); break;
    default: bytes->is_bad = true; return 0;
    }
    if ((encoding & 0x70) == RELATIVE_TO_PLACE) value += place;
    return value;
}

/* --- a function's table --- */

struct table {
    struct bytes common, own; /* instructions: of all functions of a kind, of this one */
    uintptr_t start, bytes;   /* of the function */
    uint64_t code_align;
    int64_t data_align;
    unsigned encoding, return_column;
    bool is_augmented, is_signal; /* the function's own part has an augmentation, too */
};

struct wanted {
    uintptr_t pc;
    const uint8_t *header;
};
static int object_look(struct dl_phdr_info *object, size_t size, void *context) {
    struct wanted *wanted = context;
    const uint8_t *header = NULL;
    bool has = false;
    (void)size;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD) has |= wanted->pc - start < part->p_memsz;
        if (part->p_type == PT_GNU_EH_FRAME) header = (const uint8_t *)start;
    }
    if (has) wanted->header = header;
    return has;
}

/* Looked up, not linked: a library that was built where glibc has it (2.35) is to load where it has not. A static program has no names to look in. */
#ifdef DLFO_STRUCT_HAS_EH_DBASE
typedef __typeof(_dl_find_object) find_function;
static _Atomic(find_function *) finder;
void hak_cfi_begin(void) {
    if (!hak_load_relaxed(&finder)) hak_store_release(&finder, (find_function *)(uintptr_t)hak_loaded_function("_dl_find_object"));
}
#else
void hak_cfi_begin(void) {}
#endif

/* .eh_frame_hdr of the object that has this address. */
static const uint8_t *header_of(uintptr_t pc) {
#ifdef DLFO_STRUCT_HAS_EH_DBASE
    struct dl_find_object object;
    find_function *find = hak_load_acquire(&finder);
    if (HAK_LIKELY(find != NULL)) return find((void *)pc, &object) == 0 ? object.dlfo_eh_frame : NULL;
#endif
    struct wanted wanted = { pc, NULL };
    dl_iterate_phdr(object_look, &wanted);
    return wanted.header;
}

/* The table of the function that is nearest below. */
static const void *find(uintptr_t pc) {
    enum { UDATA4 = 0x03, SDATA4 = 0x0b, ROW_BYTES = 8 };
    const uint8_t *header = header_of(pc);
    if (!header || header[0] != 1) return NULL;
    struct bytes bytes = { header + 4, header + 4 + 16, false };
    encoded(&bytes, header[1]); /* where .eh_frame is */
    uint64_t count = encoded(&bytes, header[2]);
    if (bytes.is_bad || header[2] != UDATA4 || header[3] != (RELATIVE_TO_TABLE | SDATA4)) return NULL;
    const int32_t(*rows)[2] = (const void *)bytes.at; /* function, table; sorted */
    int64_t wanted = (int64_t)(pc - (uintptr_t)header);
    uint64_t low = 0, high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (rows[middle][0] <= wanted) low = middle + 1;
        else high = middle;
    }
    return low ? header + rows[low - 1][1] : NULL;
}

static struct bytes entry(const uint8_t *at) {
    uint32_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    bool is_good = bytes != 0 && bytes != UINT32_MAX; /* the end; 64-bit entries, which nobody makes */
    return (struct bytes){ at + 4, at + 4 + (is_good ? bytes : 0), !is_good };
}

static bool common_read(struct table *table, const uint8_t *at) {
    struct bytes *bytes = &table->common;
    *bytes = entry(at);
    if (fixed(bytes, 4) != 0) return false;
    uint64_t version = fixed(bytes, 1);
    const char *kinds = (const char *)bytes->at;
    while (fixed(bytes, 1)) {}
    if (version != 1 && version != 3) return false;
    table->code_align = uleb(bytes);
    table->data_align = sleb(bytes);
    table->return_column = (unsigned)(version == 1 ? fixed(bytes, 1) : uleb(bytes));
    table->encoding = 0;
    table->is_signal = false;
    table->is_augmented = kinds[0] == 'z';
    if (kinds[0] == 0) return !bytes->is_bad;
    if (!table->is_augmented) return false;
    uint64_t count = uleb(bytes);
    if (bytes->is_bad || count > (size_t)(bytes->end - bytes->at)) return false;
    const uint8_t *instructions = bytes->at + count;
    for (const char *kind = kinds + 1; *kind && !bytes->is_bad; kind++) {
        if (*kind == 'R') table->encoding = (unsigned)fixed(bytes, 1);
        else if (*kind == 'L') fixed(bytes, 1);
        else if (*kind == 'P') encoded(bytes, (unsigned)fixed(bytes, 1) & 0x7f);
        else if (*kind == 'S') table->is_signal = true;
        else if (*kind != 'B' && *kind != 'G') break; /* the rest says nothing of where registers are */
    }
    if (bytes->is_bad) return false;
    bytes->at = instructions;
    return true;
}

static bool table_read(struct table *table, const uint8_t *at, uintptr_t pc) {
    struct bytes *bytes = &table->own;
    *bytes = entry(at);
    const uint8_t *place = bytes->at;
    uint64_t back = fixed(bytes, 4);
    if (bytes->is_bad || back == 0 || !common_read(table, place - back)) return false;
    table->start = encoded(bytes, table->encoding);
    table->bytes = encoded(bytes, table->encoding & 0x0f);
    if (table->is_augmented) {
        uint64_t count = uleb(bytes);
        if ((uint64_t)(bytes->end - bytes->at) < count) return false;
        bytes->at += count;
    }
    return !bytes->is_bad && !(table->encoding & INDIRECT) && pc - table->start < table->bytes;
}

/* --- where a function keeps its caller's registers --- */

enum how { SAME, UNDEFINED, AT_OFFSET, IS_OFFSET, IN_REGISTER, AT_EXPRESSION, IS_EXPRESSION };

struct rules {
    const uint8_t *cfa_expression; /* its length first; or NULL */
    int64_t cfa_offset;
    uint32_t cfa_register;
    bool is_signed;                /* aarch64: the return address bears a code (PAuth) */
    uint32_t told;                 /* which registers have a rule; the others are as they were */
    uint8_t how[HAK_CFI_REGISTERS];
    int64_t value[HAK_CFI_REGISTERS]; /* an offset, a register, the place of an expression */
};

static void rule_set(struct rules *rules, uint64_t number, enum how how, int64_t value) {
    if (number >= HAK_CFI_REGISTERS) return; /* the vector registers */
    rules->told |= UINT32_C(1) << number;
    rules->how[number] = (uint8_t)how;
    rules->value[number] = value;
}

static void rule_restore(struct rules *rules, uint64_t number, const struct rules *first) {
    if (number >= HAK_CFI_REGISTERS) return;
    if (first->told >> number & 1) rule_set(rules, number, first->how[number], first->value[number]);
    else rules->told &= ~(UINT32_C(1) << number);
}

static const uint8_t *block(struct bytes *bytes) {
    const uint8_t *at = bytes->at;
    uint64_t count = uleb(bytes);
    if ((uint64_t)(bytes->end - bytes->at) < count) bytes->is_bad = true;
    else bytes->at += count;
    return at;
}

enum { REMEMBERED_MAX = 4 };
struct run {
    const struct table *table;
    struct bytes bytes;
    uintptr_t at, pc;
    struct rules *rules, remembered[REMEMBERED_MAX];
    const struct rules *first; /* as the common instructions leave them */
    unsigned remembered_count;
};

/* Those whose number says all, but for the three that have an operand in their first byte. */
static bool instruction_run(struct run *run, unsigned code) {
    struct bytes *bytes = &run->bytes;
    struct rules *rules = run->rules;
    uint64_t code_align = run->table->code_align, number;
    int64_t data_align = run->table->data_align;
    switch (code) {
    case 0x00: break;
    case 0x01: run->at = encoded(bytes, run->table->encoding); break;
    case 0x02: run->at += fixed(bytes, 1) * code_align; break;
    case 0x03: run->at += fixed(bytes, 2) * code_align; break;
    case 0x04: run->at += fixed(bytes, 4) * code_align; break;
    case 0x05: number = uleb(bytes), rule_set(rules, number, AT_OFFSET, (int64_t)uleb(bytes) * data_align); break;
    case 0x06: rule_restore(rules, uleb(bytes), run->first); break;
    case 0x07: rule_set(rules, uleb(bytes), UNDEFINED, 0); break;
    case 0x08: rule_set(rules, uleb(bytes), SAME, 0); break;
    case 0x09: number = uleb(bytes), rule_set(rules, number, IN_REGISTER, (int64_t)uleb(bytes)); break;
    case 0x0a:
        if (run->remembered_count == REMEMBERED_MAX) return false;
        run->remembered[run->remembered_count++] = *rules;
        break;
    case 0x0b:
        if (run->remembered_count == 0) return false;
        *rules = run->remembered[--run->remembered_count];
        break;
    case 0x0c: rules->cfa_register = (uint32_t)uleb(bytes), rules->cfa_offset = (int64_t)uleb(bytes), rules->cfa_expression = NULL; break;
    case 0x0d: rules->cfa_register = (uint32_t)uleb(bytes), rules->cfa_expression = NULL; break;
    case 0x0e: rules->cfa_offset = (int64_t)uleb(bytes); break;
    case 0x0f: rules->cfa_expression = block(bytes); break;
    case 0x10: number = uleb(bytes), rule_set(rules, number, AT_EXPRESSION, (int64_t)(uintptr_t)block(bytes)); break;
    case 0x11: number = uleb(bytes), rule_set(rules, number, AT_OFFSET, sleb(bytes) * data_align); break;
    case 0x12: rules->cfa_register = (uint32_t)uleb(bytes), rules->cfa_offset = sleb(bytes) * data_align, rules->cfa_expression = NULL; break;
    case 0x13: rules->cfa_offset = sleb(bytes) * data_align; break;
    case 0x14: number = uleb(bytes), rule_set(rules, number, IS_OFFSET, (int64_t)uleb(bytes) * data_align); break;
    case 0x15: number = uleb(bytes), rule_set(rules, number, IS_OFFSET, sleb(bytes) * data_align); break;
    case 0x16: number = uleb(bytes), rule_set(rules, number, IS_EXPRESSION, (int64_t)(uintptr_t)block(bytes)); break;
    case 0x2d: rules->is_signed = !rules->is_signed; break; /* on SPARC something else */
    case 0x2e: uleb(bytes); break; /* what arguments take of the stack: for who lands there */
    case 0x2f: number = uleb(bytes), rule_set(rules, number, AT_OFFSET, -(int64_t)uleb(bytes) * data_align); break;
    default: return false;
    }
    return !bytes->is_bad;
}

/* Up to the place that the frame is at. */
static bool instructions_run(struct run *run) {
    while (run->bytes.at < run->bytes.end && run->at <= run->pc) {
        unsigned code = *run->bytes.at++, operand = code & 0x3f;
        switch (code >> 6) {
        case 0:
            if (!instruction_run(run, code)) return false;
            break;
        case 1: run->at += operand * run->table->code_align; break;
        case 2: rule_set(run->rules, operand, AT_OFFSET, (int64_t)uleb(&run->bytes) * run->table->data_align); break;
        default: rule_restore(run->rules, operand, run->first);
        }
    }
    return !run->bytes.is_bad;
}

static bool rules_find(struct rules *rules, const struct table *table, uintptr_t pc) {
    struct rules first;
    struct run run; /* not set to zeros: what is remembered is large, and rare */
    run.table = table;
    run.bytes = table->common;
    run.at = 0;
    run.pc = pc;
    run.rules = rules;
    run.first = &first;
    run.remembered_count = 0;
    first.told = 0;
    rules->told = 0;
    rules->cfa_expression = NULL;
    rules->cfa_register = HAK_CFI_REGISTERS; /* none */
    rules->cfa_offset = 0;
    rules->is_signed = false;
    if (!instructions_run(&run)) return false;
    first = *rules;
    run.bytes = table->own;
    run.at = table->start;
    return instructions_run(&run);
}

/* --- reading --- */

bool hak_cfi_word(struct hak_cfi_stack *stack, uintptr_t address, uintptr_t *word) {
    if (address % sizeof *word || address < stack->low || address >= stack->high || stack->high - address < sizeof *word) return false;
    uintptr_t page = hak_cfi_page(address);
    if (stack->checked && stack->checked != page) {
        if (!hak_os_readable((const void *)address)) return false;
        stack->checked = page;
    }
    *word = *(const uintptr_t *)address;
    return true;
}

static bool register_get(const struct hak_cfi_frame *frame, uint64_t number, uintptr_t *value) {
    if (number >= HAK_CFI_REGISTERS || !(frame->known >> number & 1)) return false;
    *value = frame->reg[number];
    return true;
}

/* What may be computed here: the stubs of a PLT and a signal's frame need little of it. */
static bool expression_run(const uint8_t *at, bool has_cfa, uintptr_t cfa, const struct hak_cfi_frame *frame, struct hak_cfi_stack *stack,
                           uintptr_t *result) {
    enum { DEPTH = 16, STEPS_MAX = 200 };
    uintptr_t of[DEPTH + 1], a, b;
    unsigned depth = 0;
    struct bytes bytes = { at, at + 10, false };
    uint64_t count = uleb(&bytes);
    bytes.end = bytes.at + count;
    const uint8_t *start = bytes.at;
    if (has_cfa) of[depth++] = cfa;
    for (unsigned steps = 0; bytes.at < bytes.end; steps++) {
        unsigned code = *bytes.at++, takes = 0;
        if (depth >= DEPTH || steps == STEPS_MAX) return false;
        if (code >= 0x30 && code <= 0x4f) {
            of[depth++] = code - 0x30;
            continue;
        }
        if ((code >= 0x70 && code <= 0x8f) || code == 0x92) {
            uint64_t number = code == 0x92 ? uleb(&bytes) : code - 0x70;
            if (!register_get(frame, number, &a)) return false;
            of[depth++] = a + (uintptr_t)sleb(&bytes);
            continue;
        }
        if (code == 0x06 || code == 0x12 || code == 0x13 || code == 0x1f || code == 0x20 || code == 0x23 || code == 0x28) takes = 1;
        else if (code == 0x14 || code == 0x16 || code == 0x1a || code == 0x1c || code == 0x1e || (code >= 0x21 && code <= 0x2e)) takes = 2;
        if (depth < takes) return false;
        a = takes ? of[depth - 1] : 0;
        b = takes == 2 ? of[depth - 2] : 0;
        switch (code) {
        case 0x06: if (!hak_cfi_word(stack, a, &of[depth - 1])) return false; break;
        case 0x08: of[depth++] = fixed(&bytes, 1); break;
        case 0x09: of[depth++] = (uintptr_t)extended(fixed(&bytes, 1), 1); break;
        case 0x0a: of[depth++] = fixed(&bytes, 2); break;
        case 0x0b: of[depth++] = (uintptr_t)extended(fixed(&bytes, 2), 2); break;
        case 0x0c: of[depth++] = fixed(&bytes, 4); break;
        case 0x0d: of[depth++] = (uintptr_t)extended(fixed(&bytes, 4), 4); break;
        case 0x0e: case 0x0f: of[depth++] = fixed(&bytes, 8); break;
        case 0x10: of[depth++] = uleb(&bytes); break;
        case 0x11: of[depth++] = (uintptr_t)sleb(&bytes); break;
        case 0x12: of[depth++] = a; break;
        case 0x13: depth--; break;
        case 0x14: of[depth++] = b; break;
        case 0x16: of[depth - 1] = b, of[depth - 2] = a; break;
        case 0x1a: of[--depth - 1] = b & a; break;
        case 0x1c: of[--depth - 1] = b - a; break;
        case 0x1e: of[--depth - 1] = b * a; break;
        case 0x1f: of[depth - 1] = -a; break;
        case 0x20: of[depth - 1] = ~a; break;
        case 0x21: of[--depth - 1] = b | a; break;
        case 0x22: of[--depth - 1] = b + a; break;
        case 0x23: of[depth - 1] = a + uleb(&bytes); break;
        case 0x24: of[--depth - 1] = a < 64 ? b << a : 0; break;
        case 0x25: of[--depth - 1] = a < 64 ? b >> a : 0; break;
        case 0x26: of[--depth - 1] = (uintptr_t)((intptr_t)b >> (a < 64 ? a : 63)); break;
        case 0x27: of[--depth - 1] = b ^ a; break;
        case 0x28: case 0x2f: {
            int64_t jump = extended(fixed(&bytes, 2), 2), to = bytes.at - start + jump;
            if (to < 0 || to > (int64_t)count) return false;
            if (code == 0x28) depth--;
            if (code == 0x2f || a) bytes.at = start + to;
            break;
        }
        case 0x29: of[--depth - 1] = b == a; break;
        case 0x2a: of[--depth - 1] = (intptr_t)b >= (intptr_t)a; break;
        case 0x2b: of[--depth - 1] = (intptr_t)b > (intptr_t)a; break;
        case 0x2c: of[--depth - 1] = (intptr_t)b <= (intptr_t)a; break;
        case 0x2d: of[--depth - 1] = (intptr_t)b < (intptr_t)a; break;
        case 0x2e: of[--depth - 1] = b != a; break;
        case 0x96: break;
        default: return false;
        }
        if (bytes.is_bad) return false;
    }
    if (depth == 0) return false;
    *result = of[depth - 1];
    return true;
}

/* --- a step --- */

static uintptr_t address_plain(uintptr_t address) {
#ifdef __aarch64__
    register uintptr_t link __asm__("x30") = address;
    __asm__("hint #7" : "+r"(link)); /* xpaclri */
    return link;
#else
    return address;
#endif
}

static bool cfa_find(const struct rules *rules, const struct hak_cfi_frame *frame, struct hak_cfi_stack *stack, uintptr_t *cfa) {
    if (rules->cfa_expression) return expression_run(rules->cfa_expression, false, 0, frame, stack, cfa);
    if (!register_get(frame, rules->cfa_register, cfa)) return false;
    *cfa += (uintptr_t)rules->cfa_offset;
    return true;
}

static bool register_find(const struct rules *rules, unsigned number, uintptr_t cfa, const struct hak_cfi_frame *frame,
                          struct hak_cfi_stack *stack, uintptr_t *value) {
    uintptr_t address;
    if (!(rules->told >> number & 1)) return register_get(frame, number, value);
    int64_t of = rules->value[number];
    switch ((enum how)rules->how[number]) {
    case SAME: return register_get(frame, number, value);
    case UNDEFINED: return false;
    case AT_OFFSET: return hak_cfi_word(stack, cfa + (uintptr_t)of, value);
    case IS_OFFSET: *value = cfa + (uintptr_t)of; return true;
    case IN_REGISTER: return register_get(frame, (uint64_t)of, value);
    case AT_EXPRESSION:
        return expression_run((const uint8_t *)(uintptr_t)of, true, cfa, frame, stack, &address) && hak_cfi_word(stack, address, value);
    case IS_EXPRESSION: return expression_run((const uint8_t *)(uintptr_t)of, true, cfa, frame, stack, value);
    }
    return false;
}

static bool step_by_rules(struct hak_cfi_frame *frame, struct hak_cfi_stack *stack, const struct rules *rules, const struct table *table) {
    struct hak_cfi_frame next; /* no zeros: what is not known is not read */
    uintptr_t cfa, sp = frame->reg[HAK_CFI_STACK];
    if (!cfa_find(rules, frame, stack, &cfa)) return false;
    if (!table->is_signal && cfa < sp) return false;
    next.is_exact = table->is_signal;
    next.known = 0;
    for (uint32_t left = (frame->known | rules->told) & ~(UINT32_C(1) << HAK_CFI_STACK); left; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctz(left);
        if (register_find(rules, i, cfa, frame, stack, &next.reg[i])) next.known |= UINT32_C(1) << i;
    }
    bool has_stack = rules->told >> HAK_CFI_STACK & 1;
    next.reg[HAK_CFI_STACK] = cfa;
    if (!has_stack || register_find(rules, HAK_CFI_STACK, cfa, frame, stack, &next.reg[HAK_CFI_STACK])) next.known |= UINT32_C(1) << HAK_CFI_STACK;
    if (!register_get(&next, table->return_column, &next.pc) || !(next.known >> HAK_CFI_STACK & 1)) return false;
    if (rules->is_signed) next.pc = address_plain(next.pc);
    if (next.reg[HAK_CFI_STACK] == sp && next.pc == frame->pc) return false; /* for ever */
    *frame = next;
    return true;
}

/* The kernel's way back from a signal, where no table says so: the registers lie on the stack (linux/arch, rt_sigframe). */
static bool step_from_signal(struct hak_cfi_frame *frame, struct hak_cfi_stack *stack) {
#ifdef __x86_64__
    static const uint8_t code[] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 }; /* mov $15, %rax; syscall */
    static const uint8_t numbers[] = { 8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16 };
    enum { REGISTERS_AT = 40, COUNT = 17 };
#else
    static const uint8_t code[] = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4 }; /* mov x8, #139; svc #0 */
    enum { REGISTERS_AT = 128 + 176 + 8, COUNT = 32 };
#endif
    uintptr_t last = frame->pc + sizeof code - 1;
    if (!hak_os_readable((const void *)(frame->pc & ~(uintptr_t)7)) || !hak_os_readable((const void *)(last & ~(uintptr_t)7)) ||
        memcmp((const void *)frame->pc, code, sizeof code) != 0)
        return false;
    struct hak_cfi_frame next = { .known = 0, .is_exact = true };
    uintptr_t at = frame->reg[HAK_CFI_STACK] + REGISTERS_AT;
    for (unsigned i = 0; i < COUNT; i++) {
#ifdef __x86_64__
        unsigned number = numbers[i];
#else
        unsigned number = i;
#endif
        if (!hak_cfi_word(stack, at + i * sizeof(uintptr_t), &next.reg[number])) return false;
        next.known |= UINT32_C(1) << number;
    }
#ifdef __x86_64__
    next.pc = next.reg[HAK_CFI_RETURN];
#else
    if (!hak_cfi_word(stack, at + COUNT * sizeof(uintptr_t), &next.pc)) return false;
#endif
    *frame = next;
    return true;
}

static hak_atomic_u64 jumped_to;
void hak_cfi_jumped(uintptr_t address) { hak_store_relaxed(&jumped_to, address); }

/* Nothing was pushed yet. */
static bool step_from_jump(struct hak_cfi_frame *frame, struct hak_cfi_stack *stack) {
#ifdef __x86_64__
    if (!hak_cfi_word(stack, frame->reg[HAK_CFI_STACK], &frame->pc)) return false;
    frame->reg[HAK_CFI_STACK] += sizeof(uintptr_t);
#else
    (void)stack;
    if (!register_get(frame, HAK_CFI_RETURN, &frame->pc)) return false;
#endif
    frame->is_exact = false;
    return true;
}

bool hak_cfi_step(struct hak_cfi_frame *frame, struct hak_cfi_stack *stack) {
    struct table table;
    struct rules rules;
    uintptr_t pc = frame->pc - !frame->is_exact;
    if (!(frame->known >> HAK_CFI_STACK & 1)) return false;
    const uint8_t *at = find(pc);
    if (at && table_read(&table, at, pc)) return rules_find(&rules, &table, pc) && step_by_rules(frame, stack, &rules, &table);
    if (frame->is_exact && frame->pc == hak_load_relaxed(&jumped_to)) return step_from_jump(frame, stack);
    return step_from_signal(frame, stack);
}
