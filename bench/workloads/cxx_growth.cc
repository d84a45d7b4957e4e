/* cxx_growth.cc - std::vector and std::string that grow, by C++'s own rules: a new block, a move, a delete.
 *
 * Arguments: rounds 20, seed 12345.
 * A round has three parts, told apart in `parts`: 64 vectors of numbers grow together by push_back to 1 to 40,000
 * elements; 2,000 strings grow by append to 1 to 2,000 characters; a vector of strings (nearly all too long to be
 * stored in the string itself) grows to 20,000 elements and is copied. An operation is one element or append.
 */
#include "work.h"

#include <algorithm>
#include <string>
#include <vector>

static uint64_t random_state, digest;

static uint64_t vectors_grow() {
    std::vector<std::vector<uint64_t>> all(64);
    uint64_t count = 0;
    for (uint64_t left = 200000; left; left--, count++) all[work_skewed(&random_state, all.size())].push_back(left);
    for (const auto &one : all) {
        for (size_t i = 1; i < one.size(); i += 61)
            if (one[i] >= one[i - 1]) work_die(1, "a vector has changed");
        if (!one.empty()) digest += one.front() * 7 + one.back();
    }
    return count;
}

static uint64_t strings_grow() {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    uint64_t count = 0;
    for (unsigned i = 0; i < 2000; i++) {
        std::string text;
        for (size_t length = 1 + work_skewed(&random_state, 2000); text.size() < length; count++)
            text.append(letters + count % 20, 1 + count % 16);
        digest += (unsigned char)text[text.size() / 2] + text.size();
    }
    return count;
}

static uint64_t names_copy() {
    std::vector<std::string> names;
    for (unsigned i = 0; i < 20000; i++)
        names.push_back(std::string(4 + work_below(&random_state, 60), (char)('a' + i % 26)) + "/name");
    std::vector<std::string> copy(names);
    std::reverse(copy.begin(), copy.end());
    for (size_t i = 0; i < names.size(); i++)
        if (names[i] != copy[copy.size() - 1 - i]) work_die(1, "the names have changed");
    digest += copy.front().size() + copy.back().size() * 3 + names.size();
    return 2 * names.size();
}

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 20, 1, 1u << 30);
    uint64_t seed = work_arg(argc, argv, 2, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 2);
    random_state = seed;
    static const struct { const char *name; uint64_t (*run)(); } part[] = {
        { "vectors", vectors_grow }, { "strings", strings_grow }, { "names", names_copy } };
    uint64_t part_ns[3] = { 0, 0, 0 }, part_ops[3] = { 0, 0, 0 }, op_count = 0;
    struct work_span span = work_start();
    for (uint64_t round = 0; round < round_count; round++)
        for (unsigned i = 0; i < 3; i++) {
            uint64_t cpu_ns = work_cpu_ns(), ops = part[i].run();
            part_ns[i] += work_cpu_ns() - cpu_ns;
            part_ops[i] += ops;
            op_count += ops;
        }
    work_stop(&span);
    work_begin("cxx_growth", argc, argv);
    work_number("seed", seed);
    work_measured(op_count, span);
    work_parts_begin();
    for (unsigned i = 0; i < 3; i++) work_part(part[i].name, part_ops[i], part_ns[i]);
    work_parts_end();
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
