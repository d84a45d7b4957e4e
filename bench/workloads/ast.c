/* ast.c - what a compiler does with its tree: build it, copy it, rewrite parts of it, and throw all away.
 *
 * Arguments: functions 2000, seed 12345.
 * A function is a block of statements whose list grows by realloc; expressions have one to three children, names
 * are strings of their own, numbers are folded where both sides are known: the folded children are freed. After each
 * function one of those there are is copied (as an inliner does), the copy is folded, evaluated and freed. In the end
 * the originals are folded too, which must not change their value, and freed. Nodes are of four sizes from 32 to 112
 * bytes. An operation is one node or name made.
 */
#include "work.h"

enum kind { NUMBER, NAME, BINARY, CALL, BLOCK };
enum { LIST_FIRST = 4, DEPTH_MAX = 8 };
struct node { uint32_t kind, count; uint64_t value; };                    /* 16 bytes that every node begins with */
struct number { struct node node; uint64_t place[2]; };                   /* 32 */
struct name { struct node node; char *text; uint64_t place[3]; };         /* 48 */
struct binary { struct node node; struct node *side[2]; uint64_t place[4]; }; /* 64 */
struct call { struct node node; char *text; struct node *argument[3]; uint64_t place[8]; }; /* 112 */
struct block { struct node node; struct node **statement; uint64_t room, place[2]; };       /* 48 */

static uint64_t random_state, op_count;

static void *node_make(enum kind kind, size_t bytes, uint64_t value) {
    struct node *node = malloc(bytes);
    work_aligned(node, bytes);
    *node = (struct node){ kind, 0, value };
    op_count++;
    return node;
}

static char *text_make(uint64_t value) {
    char text[64];
    size_t length = 1 + value % 40;
    for (size_t i = 0; i < length; i++) text[i] = (char)('a' + (value >> i % 16) % 26);
    text[length] = 0;
    char *copy = strdup(text);
    work_aligned(copy, length + 1);
    op_count++;
    return copy;
}
static uint64_t text_value(const char *text) {
    uint64_t sum = 0;
    for (; *text; text++) sum = sum * 31 + (unsigned char)*text;
    return sum;
}

static struct node *expression_make(unsigned depth) {
    uint64_t draw = work_below(&random_state, 100), value = work_random(&random_state) >> 40;
    if (depth >= DEPTH_MAX || draw < 25) return node_make(NUMBER, sizeof(struct number), value);
    if (draw < 45) {
        struct name *name = node_make(NAME, sizeof *name, value);
        name->text = text_make(value);
        return &name->node;
    }
    if (draw < 80) {
        struct binary *binary = node_make(BINARY, sizeof *binary, value % 3);
        for (unsigned i = 0; i < 2; i++) binary->side[i] = expression_make(depth + 1);
        return &binary->node;
    }
    struct call *call = node_make(CALL, sizeof *call, value);
    call->text = text_make(value);
    call->node.count = 1 + (uint32_t)work_below(&random_state, 3);
    for (unsigned i = 0; i < call->node.count; i++) call->argument[i] = expression_make(depth + 1);
    return &call->node;
}

static void block_append(struct block *block, struct node *statement) {
    if (block->node.count == block->room) {
        block->room = block->room ? 2 * block->room : LIST_FIRST;
        block->statement = realloc(block->statement, block->room * sizeof *block->statement);
        work_aligned(block->statement, block->room * sizeof *block->statement);
    }
    block->statement[block->node.count++] = statement;
}

static struct node *function_make(void) {
    struct block *block = node_make(BLOCK, sizeof *block, 0);
    block->statement = NULL;
    block->room = 0;
    for (uint64_t left = 5 + work_skewed(&random_state, 100); left; left--) block_append(block, expression_make(0));
    return &block->node;
}

static struct node *copy(const struct node *node) {
    switch (node->kind) {
    case NUMBER: return node_make(NUMBER, sizeof(struct number), node->value);
    case NAME: {
        struct name *name = node_make(NAME, sizeof *name, node->value);
        name->text = strdup(((const struct name *)node)->text);
        op_count++;
        return &name->node;
    }
    case BINARY: {
        struct binary *binary = node_make(BINARY, sizeof *binary, node->value);
        for (unsigned i = 0; i < 2; i++) binary->side[i] = copy(((const struct binary *)node)->side[i]);
        return &binary->node;
    }
    case CALL: {
        struct call *call = node_make(CALL, sizeof *call, node->value);
        call->text = strdup(((const struct call *)node)->text);
        op_count++;
        call->node.count = node->count;
        for (unsigned i = 0; i < node->count; i++) call->argument[i] = copy(((const struct call *)node)->argument[i]);
        return &call->node;
    }
    default: {
        const struct block *original = (const struct block *)node;
        struct block *block = node_make(BLOCK, sizeof *block, node->value);
        block->statement = NULL;
        block->room = 0;
        for (unsigned i = 0; i < node->count; i++) block_append(block, copy(original->statement[i]));
        return &block->node;
    }
    }
}

static uint64_t binary_value(uint64_t how, uint64_t left, uint64_t right) {
    return how == 0 ? left + right : how == 1 ? left * 3 - right : left ^ right;
}

static uint64_t value_of(const struct node *node) {
    uint64_t sum = node->value;
    switch (node->kind) {
    case NUMBER: return sum;
    case NAME: return text_value(((const struct name *)node)->text);
    case BINARY: {
        const struct binary *binary = (const struct binary *)node;
        return binary_value(node->value, value_of(binary->side[0]), value_of(binary->side[1]));
    }
    case CALL:
        sum = text_value(((const struct call *)node)->text);
        for (unsigned i = 0; i < node->count; i++) sum = sum * 5 + value_of(((const struct call *)node)->argument[i]);
        return sum;
    default:
        for (unsigned i = 0; i < node->count; i++) sum = sum * 7 + value_of(((const struct block *)node)->statement[i]);
        return sum;
    }
}

static void node_free(struct node *node) {
    if (node->kind == NAME) free(((struct name *)node)->text);
    if (node->kind == BINARY)
        for (unsigned i = 0; i < 2; i++) node_free(((struct binary *)node)->side[i]);
    if (node->kind == CALL) {
        free(((struct call *)node)->text);
        for (unsigned i = 0; i < node->count; i++) node_free(((struct call *)node)->argument[i]);
    }
    if (node->kind == BLOCK) {
        for (unsigned i = 0; i < node->count; i++) node_free(((struct block *)node)->statement[i]);
        free(((struct block *)node)->statement);
    }
    free(node);
}

static struct node *folded(struct node *node);
static void all_fold(struct node **list, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) list[i] = folded(list[i]);
}
/* Two numbers become one; what is above it is looked at again. */
static struct node *folded(struct node *node) {
    if (node->kind == CALL) all_fold(((struct call *)node)->argument, node->count);
    if (node->kind == BLOCK) all_fold(((struct block *)node)->statement, node->count);
    if (node->kind != BINARY) return node;
    struct binary *binary = (struct binary *)node;
    for (unsigned i = 0; i < 2; i++) binary->side[i] = folded(binary->side[i]);
    if (binary->side[0]->kind != NUMBER || binary->side[1]->kind != NUMBER) return node;
    uint64_t value = binary_value(node->value, binary->side[0]->value, binary->side[1]->value);
    node_free(node);
    return node_make(NUMBER, sizeof(struct number), value);
}

int main(int argc, char **argv) {
    uint64_t function_count = work_arg(argc, argv, 1, "functions", 2000, 1, 1u << 24);
    uint64_t seed = work_arg(argc, argv, 2, "seed", 12345, 0, UINT64_MAX), digest = 0;
    work_args_end(argc, argv, 2);
    random_state = seed;
    struct node **function = work_table(function_count * sizeof *function);
    struct work_span span = work_start();
    for (uint64_t i = 0; i < function_count; i++) {
        function[i] = function_make();
        struct node *inlined = folded(copy(function[work_below(&random_state, i + 1)]));
        digest += value_of(inlined);
        node_free(inlined);
    }
    for (uint64_t i = 0; i < function_count; i++) {
        uint64_t before = value_of(function[i]);
        function[i] = folded(function[i]);
        if (value_of(function[i]) != before) work_die(1, "function %" PRIu64 " has changed", i);
        digest += before;
    }
    uint64_t resident_kb = work_resident_amid(&span);
    for (uint64_t i = 0; i < function_count; i++) node_free(function[i]);
    work_stop(&span);
    work_begin("ast", argc, argv);
    work_number("seed", seed);
    work_measured(op_count, span);
    work_check(digest);
    work_number("resident_kb", resident_kb);
    return work_end();
}
