/* binary_trees.c - complete binary trees are built, walked and torn down, beside one that lives on.
 *
 * Arguments: depth 16, rounds 4.
 * After an idea of Ellis, Kovac and Boehm (a benchmark for collectors): in each round, for every second depth from
 * 4 to the given one, so many trees are made that each depth costs about as much. A node is two pointers and a
 * number, 24 bytes. An operation is one node.
 */
#include "work.h"

struct node { struct node *left, *right; uint64_t number; };

static struct node *tree_make(uint64_t depth, uint64_t number) {
    struct node *node = malloc(sizeof *node);
    work_aligned(node, sizeof *node);
    *node = (struct node){ depth ? tree_make(depth - 1, 2 * number) : NULL,
                           depth ? tree_make(depth - 1, 2 * number + 1) : NULL, number };
    return node;
}
static uint64_t tree_sum(const struct node *node) {
    return node->number * 31 + (node->left ? tree_sum(node->left) + 7 * tree_sum(node->right) : 0);
}
static void tree_free(struct node *node) {
    if (node->left) tree_free(node->left);
    if (node->right) tree_free(node->right);
    free(node);
}

int main(int argc, char **argv) {
    uint64_t depth_max = work_arg(argc, argv, 1, "depth", 16, 4, 28);
    uint64_t round_count = work_arg(argc, argv, 2, "rounds", 4, 1, 1u << 30);
    work_args_end(argc, argv, 2);
    uint64_t op_count = 0, digest = 0;
    struct work_span span = work_start();
    struct node *lasting = tree_make(depth_max, 1);
    op_count += ((uint64_t)2 << depth_max) - 1;
    for (uint64_t round = 0; round < round_count; round++)
        for (uint64_t depth = 4; depth <= depth_max; depth += 2)
            for (uint64_t tree = 0; tree < (uint64_t)1 << (depth_max - depth); tree++) {
                struct node *root = tree_make(depth, tree + 1);
                digest += tree_sum(root);
                tree_free(root);
                op_count += ((uint64_t)2 << depth) - 1;
            }
    digest += tree_sum(lasting);
    tree_free(lasting);
    work_stop(&span);
    work_begin("binary_trees", argc, argv);
    work_measured(op_count, span);
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
