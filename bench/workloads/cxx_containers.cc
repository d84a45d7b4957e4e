/* cxx_containers.cc - the standard library's containers of nodes: map, unordered_map, set of strings, list, deque,
 * and objects behind shared_ptr, filled, searched and emptied by turns.
 *
 * Arguments: rounds 200000, seed 12345.
 * Each container holds about 2,000 elements; a round puts one into each and takes one out. What is taken out is
 * checked. An operation is one round.
 */
#include "work.h"

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

struct shape {
    uint64_t tag;
    explicit shape(uint64_t tag) : tag(tag) {}
    virtual ~shape() {}
    virtual uint64_t value() const { return tag; }
};
struct square : shape {
    double side[3] = { 1, 2, 3 };
    using shape::shape;
    uint64_t value() const override { return tag * 2; }
};
struct polygon : shape {
    std::vector<uint32_t> corner;
    explicit polygon(uint64_t tag) : shape(tag), corner(3 + tag % 29, (uint32_t)tag) {}
    uint64_t value() const override {
        if (corner.front() != (uint32_t)tag || corner.back() != (uint32_t)tag) work_die(1, "a polygon has changed");
        return tag * 3;
    }
};

enum { HELD = 2000 };
static std::string name_of(uint64_t number) {
    return std::string(8 + number % 40, (char)('a' + number % 26)) + std::to_string(number);
}

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 200000, 1, 1u << 30);
    uint64_t seed = work_arg(argc, argv, 2, "seed", 12345, 0, UINT64_MAX), random = seed, digest = 0;
    work_args_end(argc, argv, 2);
    struct work_span span = work_start();
    {
        std::map<uint64_t, std::string> ordered;
        std::unordered_map<std::string, uint64_t> hashed;
        std::set<std::string> words;
        std::list<uint64_t> list;
        std::deque<std::unique_ptr<shape>> shapes;
        std::vector<std::shared_ptr<shape>> shared(HELD);
        for (uint64_t round = 0; round < round_count; round++) {
            uint64_t draw = work_below(&random, 4 * HELD), other = work_below(&random, HELD);
            auto found = ordered.find(draw);
            if (found != ordered.end()) {
                if (found->second != name_of(draw)) work_die(1, "the map has changed");
                digest += found->second.size();
                ordered.erase(found);
            } else if (ordered.size() < HELD) {
                ordered.emplace(draw, name_of(draw));
            } else {
                ordered.erase(ordered.begin());
            }
            std::string name = name_of(other);
            if (!hashed.emplace(name, other).second) {
                digest += hashed[name];
                hashed.erase(name);
            }
            if (!words.insert(name).second) words.erase(name);
            list.push_back(round);
            if (list.size() > HELD) {
                digest += list.front();
                list.pop_front();
            }
            shapes.emplace_back(draw & 1 ? static_cast<shape *>(new square(round)) : new polygon(round));
            if (shapes.size() > HELD) {
                digest += shapes.front()->value();
                shapes.pop_front();
            }
            if (shared[other]) digest += shared[other]->value();
            shared[other] = draw & 3 ? std::make_shared<square>(round) : shared[(other + 1) % HELD];
        }
        digest += ordered.size() + hashed.size() * 3 + words.size() * 7;
    }
    work_stop(&span);
    work_begin("cxx_containers", argc, argv);
    work_number("seed", seed);
    work_measured(round_count, span);
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
