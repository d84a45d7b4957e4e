"""_cxx.py - the C++ file that gcc and clang compile: the standard library's containers and a lot of small templates."""
import _real

TOP = """#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>
template <int N> struct count_down { static constexpr long value = N + count_down<N - 1>::value; };
template <> struct count_down<0> { static constexpr long value = 0; };
template <class... T> struct all_of_them { static constexpr int size = (0 + ... + (int)sizeof(T)); };
"""

UNIT = """
namespace unit_{n} {{
struct {a} {{ int {b}; std::string {c}; bool operator<(const {a} &o) const {{ return std::tie({b}, {c}) < std::tie(o.{b}, o.{c}); }} }};
template <class T> struct {a}_box {{
    std::vector<T> items; std::map<std::string, T> names;
    template <class F> auto each(F f) const {{ std::vector<decltype(f(std::declval<T>()))> out; for (auto &x : items) out.push_back(f(x)); return out; }}
    void add(const std::string &n, T t) {{ items.push_back(t); names.emplace(n, std::move(t)); }}
}};
using mix = std::variant<int, std::string, std::vector<{a}>, std::shared_ptr<{a}_box<{a}>>>;
long {c}(int n) {{
    {a}_box<{a}> box; std::set<{a}> set; std::unordered_map<int, std::function<long({a} &)>> calls;
    for (int i = 0; i < n + {k}; i++) {{ {a} one{{i * {k}, std::to_string(i)}}; box.add(one.{c}, one); set.insert(one);
        calls[i] = [i]({a} &x) {{ return x.{b} + i + count_down<{k}>::value + all_of_them<int, {a}, mix>::size; }}; }}
    long sum = 0; for (auto &[name, value] : box.names) sum += calls[value.{b} % (n + 1)](value);
    std::sort(box.items.begin(), box.items.end(), [](auto &x, auto &y) {{ return y < x; }});
    for (auto length : box.each([](const {a} &x) {{ return x.{c}.size(); }})) sum += (long)length;
    mix m = box.items; if (auto *list = std::get_if<std::vector<{a}>>(&m)) sum += (long)list->size();
    return sum + (long)set.size();
}}
}}
"""


def source(units):
    """Path of the generated file with that many units."""
    def text():
        words = _real.Words()
        names = lambda tag: words.word() + tag  # noqa: E731
        body = [UNIT.format(n=n, a=names("_t"), b=names("_m"), c=names("_f"), k=10 + words.below(90))
                for n in range(units)]
        return TOP + "".join(body)
    return _real.written(f"templates-{units}.cc", text)
