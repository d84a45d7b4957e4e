/* text.h - build a text in memory that the caller gives, without allocating and without libc.
 *
 * `used` counts what the whole text needs, also beyond the capacity, so that a caller learns the length as
 * from snprintf; only the first `capacity` bytes are ever written. There is no NUL until hak_text_end().
 * Everything here is async-signal-safe and works before constructors have run.
 */
#ifndef HAK_BASE_TEXT_H
#define HAK_BASE_TEXT_H

#include "base/attr.h"

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hak_text {
    char *at;
    size_t used, capacity;
};

/* A text over a char array. */
#define HAK_TEXT(array) { (array), 0, sizeof(array) }

/* The bytes that were really written. */
HAK_INLINE size_t hak_text_held(const struct hak_text *text) {
    return text->used < text->capacity ? text->used : text->capacity;
}

void hak_text_bytes(struct hak_text *text, const char *bytes, size_t count);
void hak_text_str(struct hak_text *text, const char *string); /* NULL is written as (null) */
void hak_text_char(struct hak_text *text, char c);
void hak_text_u64(struct hak_text *text, uint64_t number);
void hak_text_i64(struct hak_text *text, int64_t number);
void hak_text_hex(struct hak_text *text, uint64_t number);    /* digits only, no 0x */
void hak_text_pointer(struct hak_text *text, const void *p);  /* as printf's %p: 0x..., NULL as (nil) */

/* For tables: at least `width` columns, numbers to the right, strings to the left. */
void hak_text_u64_padded(struct hak_text *text, uint64_t number, unsigned width);
void hak_text_str_padded(struct hak_text *text, const char *string, unsigned width);

/* A string that came from outside: bytes that would break a line or a terminal are written as '?', and
 * what is longer than `count_max` is cut with "...". */
void hak_text_foreign(struct hak_text *text, const char *string, size_t count_max);

/* A string inside a JSON string: quotes, backslashes and control characters escaped. */
void hak_text_json(struct hak_text *text, const char *string);

/* As printf: %s %c %d %u %x %p %%, with h, l, ll, z, j; with -, 0, a width and for %s a precision, each of
 * these also as *. An unknown conversion is written as it stands. */
__attribute__((format(printf, 2, 3)))
void hak_text_format(struct hak_text *text, const char *format, ...);
__attribute__((format(printf, 2, 0)))
void hak_text_format_list(struct hak_text *text, const char *format, va_list list);

/* Ends with NUL, cutting if it must, and returns the length that the whole text has. */
size_t hak_text_end(struct hak_text *text);

/* Makes the last written byte a newline, also of a text that was cut; for messages of one line. */
void hak_text_end_line(struct hak_text *text);

/* Equal but for the case of ASCII letters. */
bool hak_name_same(const char *a, const char *b);

/* Insertions, deletions and substitutions that make b of a, case aside. Names are compared in their first
 * HAK_NAME_COMPARED bytes; each byte that one of them is longer counts one. */
enum { HAK_NAME_COMPARED = 48 };
unsigned hak_name_distance(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
