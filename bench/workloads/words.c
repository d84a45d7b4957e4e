/* words.c - a text is read line by line, split into words, counted, sorted and joined: what scripts and parsers do.
 *
 * Arguments: lines 40000, seed 12345.
 * A line of 1 to 40 words is put together in a buffer that grows by realloc, and split; each word is copied. A word
 * that is known adds the number of its line to a list of its own (grown by doubling), and the copy is freed; the
 * words are a few thousand, some of them far more frequent than others. In the end the words are sorted and joined
 * to one text, as is each one's list of lines. An operation is one word read.
 */
#include "work.h"

enum { BUCKETS = 1 << 13, WORDS = 6000 };
struct word {
    struct word *chain;
    char *text;
    uint32_t *line;
    uint32_t line_count, line_room;
};
static struct word *bucket[BUCKETS];
static uint64_t random_state, word_count, digest;

static uint64_t text_hash(const char *text) {
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

struct text { char *bytes; size_t length, room; };
static void text_append(struct text *text, const char *more) {
    size_t length = strlen(more);
    if (text->length + length + 1 > text->room) {
        text->room = text->room + text->room / 2 + length + 24;
        text->bytes = realloc(text->bytes, text->room);
        work_aligned(text->bytes, text->room);
    }
    memcpy(text->bytes + text->length, more, length + 1);
    text->length += length;
}

static void line_make(struct text *line) {
    for (uint64_t left = 1 + work_below(&random_state, 40); left; left--) {
        uint64_t word = work_skewed(&random_state, WORDS), mixed = word * 0x9e3779b97f4a7c15u;
        char text[16];
        size_t length = 2 + mixed % 12;
        for (size_t i = 0; i < length; i++) text[i] = (char)('a' + (mixed >> (i * 5)) % 26);
        text[length] = ' ';
        text[length + 1] = 0;
        text_append(line, text);
    }
}

static void word_read(const char *from, size_t length, uint32_t line_number) {
    char *text = strndup(from, length);
    if (!text) work_die(1, "no memory for a word");
    word_count++;
    struct word **first = &bucket[text_hash(text) % BUCKETS], *word = *first;
    while (word && strcmp(word->text, text)) word = word->chain;
    if (word) {
        free(text);
    } else {
        word = calloc(1, sizeof *word);
        work_aligned(word, sizeof *word);
        word->text = text;
        word->chain = *first;
        *first = word;
    }
    if (word->line_count == word->line_room) {
        word->line_room = word->line_room ? 2 * word->line_room : 2;
        word->line = realloc(word->line, word->line_room * sizeof *word->line);
        if (!word->line) work_die(1, "no memory for a list of lines");
    }
    word->line[word->line_count++] = line_number;
}

static int word_compare(const void *one, const void *other) {
    const struct word *a = *(struct word *const *)one, *b = *(struct word *const *)other;
    return strcmp(a->text, b->text);
}

static void words_join(void) {
    uint64_t count = 0;
    struct word **sorted = NULL;
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct word *word = bucket[i]; word; word = word->chain) {
            if ((count & (count - 1)) == 0) sorted = realloc(sorted, (count ? 2 * count : 1) * sizeof *sorted);
            if (!sorted) work_die(1, "no memory for the words");
            sorted[count++] = word;
        }
    qsort(sorted, count, sizeof *sorted, word_compare);
    struct text all = { NULL, 0, 0 };
    for (uint64_t i = 0; i < count; i++) {
        struct text lines = { NULL, 0, 0 };
        for (uint32_t k = 0; k < sorted[i]->line_count; k++) {
            char number[16], *first = number + sizeof number - 1;
            *first = 0;
            *--first = ',';
            uint32_t left = sorted[i]->line[k];
            do *--first = (char)('0' + left % 10);
            while (left /= 10);
            text_append(&lines, first);
        }
        text_append(&all, sorted[i]->text);
        text_append(&all, " ");
        digest += text_hash(lines.bytes);
        free(lines.bytes);
        free(sorted[i]->text);
        free(sorted[i]->line);
        free(sorted[i]);
    }
    digest += text_hash(all.bytes);
    free(all.bytes);
    free(sorted);
    memset(bucket, 0, sizeof bucket);
}

int main(int argc, char **argv) {
    uint64_t line_count = work_arg(argc, argv, 1, "lines", 40000, 1, 1u << 30);
    uint64_t seed = work_arg(argc, argv, 2, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 2);
    random_state = seed;
    struct work_span span = work_start();
    for (uint32_t number = 0; number < line_count; number++) {
        struct text line = { NULL, 0, 0 };
        line_make(&line);
        for (const char *at = line.bytes, *end; (end = strchr(at, ' ')); at = end + 1)
            word_read(at, (size_t)(end - at), number);
        free(line.bytes);
    }
    uint64_t resident_kb = work_resident_amid(&span);
    words_join();
    work_stop(&span);
    work_begin("words", argc, argv);
    work_number("seed", seed);
    work_measured(word_count, span);
    work_check(digest);
    work_number("resident_kb", resident_kb);
    return work_end();
}
