/* text.c - the bounded text builder.
 *
 * Owns:      nothing; the caller's struct and bytes.
 * Threads:   one per text.
 * Invariant: the first min(used, capacity) bytes of `at` are the text's first bytes.
 * Rejected:  libc's snprintf: it may allocate, takes locale locks, and is not async-signal-safe.
 */
#include "base/text.h"

enum { NUMBER_BYTES_MAX = 24 }; /* 20 digits of 2^64 and a sign */

static size_t string_length(const char *string, size_t count_max) {
    size_t length = 0;
    while (length < count_max && string[length])
        length++;
    return length;
}

void hak_text_char(struct hak_text *text, char c) {
    if (text->used < text->capacity)
        text->at[text->used] = c;
    text->used++;
}

void hak_text_bytes(struct hak_text *text, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        hak_text_char(text, bytes[i]);
}

static void text_fill(struct hak_text *text, char c, size_t count) {
    while (count--)
        hak_text_char(text, c);
}

void hak_text_str(struct hak_text *text, const char *string) {
    if (!string)
        string = "(null)";
    while (*string)
        hak_text_char(text, *string++);
}

/* The digits end at `end`; returns where they start. */
static char *digits_write(char *end, uint64_t number, unsigned base) {
    do {
        *--end = "0123456789abcdef"[number % base];
        number /= base;
    } while (number);
    return end;
}

struct field {
    size_t width;
    bool left, zeros;
};

/* One number in its field: the sign or 0x stands before the zeros that fill up the width. */
static void text_number(struct hak_text *text, const char *prefix, uint64_t number, unsigned base,
                        struct field field) {
    char digits[NUMBER_BYTES_MAX];
    char *end = digits + sizeof(digits), *start = digits_write(end, number, base);
    size_t count = (size_t)(end - start) + string_length(prefix, 2);
    size_t fill = field.width > count ? field.width - count : 0;
    if (!field.left && !field.zeros)
        text_fill(text, ' ', fill);
    hak_text_str(text, prefix);
    if (!field.left && field.zeros)
        text_fill(text, '0', fill);
    hak_text_bytes(text, start, (size_t)(end - start));
    if (field.left)
        text_fill(text, ' ', fill);
}

static void text_string(struct hak_text *text, const char *string, size_t count, struct field field) {
    size_t fill = field.width > count ? field.width - count : 0;
    if (!field.left)
        text_fill(text, ' ', fill);
    hak_text_bytes(text, string, count);
    if (field.left)
        text_fill(text, ' ', fill);
}

static void text_signed(struct hak_text *text, int64_t number, struct field field) {
    /* the magnitude is taken unsigned: -INT64_MIN has no signed value */
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    text_number(text, number < 0 ? "-" : "", magnitude, 10, field);
}

static void text_pointer(struct hak_text *text, const void *p, struct field field) {
    if (p)
        text_number(text, "0x", (uintptr_t)p, 16, field);
    else
        text_string(text, "(nil)", 5, field);
}

void hak_text_u64(struct hak_text *text, uint64_t number) {
    text_number(text, "", number, 10, (struct field){0});
}

void hak_text_i64(struct hak_text *text, int64_t number) {
    text_signed(text, number, (struct field){0});
}

void hak_text_hex(struct hak_text *text, uint64_t number) {
    text_number(text, "", number, 16, (struct field){0});
}

void hak_text_pointer(struct hak_text *text, const void *p) {
    text_pointer(text, p, (struct field){0});
}

void hak_text_u64_padded(struct hak_text *text, uint64_t number, unsigned width) {
    text_number(text, "", number, 10, (struct field){ .width = width });
}

void hak_text_str_padded(struct hak_text *text, const char *string, unsigned width) {
    text_string(text, string, string_length(string, SIZE_MAX), (struct field){ .width = width, .left = true });
}

void hak_text_foreign(struct hak_text *text, const char *string, size_t count_max) {
    size_t i = 0;
    for (; i < count_max && string[i]; i++)
        hak_text_char(text, string[i] >= ' ' && string[i] <= '~' ? string[i] : '?');
    if (i == count_max && string[i])
        hak_text_str(text, "...");
}

void hak_text_json(struct hak_text *text, const char *string) {
    for (; *string; string++) {
        unsigned char c = (unsigned char)*string;
        if (c == '"' || c == '\\') {
            hak_text_char(text, '\\');
            hak_text_char(text, *string);
        } else if (c < 0x20) {
            hak_text_str(text, "\\u");
            text_number(text, "", c, 16, (struct field){ .width = 4, .zeros = true });
        } else {
            hak_text_char(text, *string);
        }
    }
}

/* The length of an argument as its l, ll, z, j, h letters say; every one of them is a long here but int. */
static const char *length_read(const char *format, bool *is_long) {
    HAK_STATIC(sizeof(long) == sizeof(long long) && sizeof(long) == sizeof(size_t) && sizeof(long) == 8);
    *is_long = false;
    for (;; format++) {
        if (*format == 'l' || *format == 'z' || *format == 'j' || *format == 't')
            *is_long = true;
        else if (*format != 'h')
            return format;
    }
}

static const char *count_read(const char *format, size_t *count) {
    *count = 0;
    for (; *format >= '0' && *format <= '9'; format++)
        *count = *count * 10 + (size_t)(*format - '0');
    return format;
}

void hak_text_format_list(struct hak_text *text, const char *format, va_list list) {
    for (; *format; format++) {
        if (*format != '%') {
            hak_text_char(text, *format);
            continue;
        }
        const char *start = format++;
        struct field field = {0};
        size_t precision = SIZE_MAX;
        bool is_long;

        for (;; format++) {
            if (*format == '-')
                field.left = true;
            else if (*format == '0')
                field.zeros = true;
            else
                break;
        }
        if (*format == '*') {
            int width = va_arg(list, int);
            field.left |= width < 0;
            field.width = (size_t)(width < 0 ? 0 - (unsigned)width : (unsigned)width);
            format++;
        } else {
            format = count_read(format, &field.width);
        }
        if (*format == '.') {
            format++;
            if (*format == '*') {
                int count = va_arg(list, int);
                precision = count < 0 ? SIZE_MAX : (size_t)count;
                format++;
            } else {
                format = count_read(format, &precision);
            }
        }
        format = length_read(format, &is_long);

        switch (*format) {
        case 'd':
        case 'i': text_signed(text, is_long ? va_arg(list, long) : va_arg(list, int), field); break;
        case 'u':
            text_number(text, "", is_long ? va_arg(list, unsigned long) : va_arg(list, unsigned), 10, field);
            break;
        case 'x':
            text_number(text, "", is_long ? va_arg(list, unsigned long) : va_arg(list, unsigned), 16, field);
            break;
        case 'p': text_pointer(text, va_arg(list, const void *), field); break;
        case 'c': {
            char c = (char)va_arg(list, int);
            text_string(text, &c, 1, field);
            break;
        }
        case 's': {
            const char *string = va_arg(list, const char *);
            if (!string)
                string = "(null)";
            text_string(text, string, string_length(string, precision), field);
            break;
        }
        case '%': hak_text_char(text, '%'); break;
        default:
            hak_text_bytes(text, start, (size_t)(format - start) + (*format != 0));
            if (!*format)
                return;
        }
    }
}

void hak_text_format(struct hak_text *text, const char *format, ...) {
    va_list list;
    va_start(list, format);
    hak_text_format_list(text, format, list);
    va_end(list);
}

size_t hak_text_end(struct hak_text *text) {
    if (text->capacity)
        text->at[text->used < text->capacity ? text->used : text->capacity - 1] = 0;
    return text->used;
}

void hak_text_end_line(struct hak_text *text) {
    if (text->capacity && text->used >= text->capacity) {
        text->used = text->capacity;
        text->at[text->capacity - 1] = '\n';
    } else if (!text->used || text->at[text->used - 1] != '\n') {
        hak_text_char(text, '\n');
    }
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool hak_name_same(const char *a, const char *b) {
    while (*a && lower(*a) == lower(*b))
        a++, b++;
    return lower(*a) == lower(*b);
}

HAK_COLD unsigned hak_name_distance(const char *a, const char *b) {
    /* Wagner and Fischer's table, one row at a time: row[j] is the distance of a's first i bytes to b's first j */
    unsigned row[HAK_NAME_COMPARED + 1];
    size_t a_length = string_length(a, SIZE_MAX), b_length = string_length(b, SIZE_MAX);
    size_t a_compared = a_length < HAK_NAME_COMPARED ? a_length : HAK_NAME_COMPARED;
    size_t b_compared = b_length < HAK_NAME_COMPARED ? b_length : HAK_NAME_COMPARED;

    for (size_t j = 0; j <= b_compared; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= a_compared; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_compared; j++) {
            unsigned best = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
            if (best > row[j] + 1)
                best = row[j] + 1;
            if (best > row[j - 1] + 1)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    size_t beyond = a_length - a_compared > b_length - b_compared ? a_length - a_compared : b_length - b_compared;
    return row[b_compared] + (unsigned)beyond;
}
