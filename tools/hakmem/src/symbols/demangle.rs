//! demangle.rs - C++ and Rust names as their authors wrote them.

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// A mangled name may expand exponentially; longer ones are shown as they are.
const NAME_BYTES_MAX: usize = 16 << 10;

pub fn demangled(name: &str) -> String {
    let name = name.split("@@").next().unwrap_or(name); // a version: malloc@@GLIBC_2.2.5
    if name.len() > NAME_BYTES_MAX {
        return name.chars().take(256).collect();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let text = format!("{rust:#}"); // without the hash
        if text.len() <= NAME_BYTES_MAX {
            return text;
        }
    }
    if name.starts_with("_Z") || name.starts_with("__Z") || name.starts_with("_GLOBAL__") {
        let limit = ParseOptions::default().recursion_limit(128);
        let options = DemangleOptions::new().hide_expression_literal_types().recursion_limit(128);
        if let Ok(Ok(text)) = Symbol::new_with_options(name, &limit).map(|symbol| symbol.demangle(&options)) {
            return if text.len() <= NAME_BYTES_MAX { text } else { name.to_owned() };
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_their_authors_wrote_them() {
        for (mangled, name) in [
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_ZN5cache6insert17h0123456789abcdefE", "cache::insert"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN6Parser5parseEv.constprop.0", "Parser::parse()"),
            ("main", "main"),
            ("malloc@@GLIBC_2.2.5", "malloc"),
            ("_Zgarbage", "_Zgarbage"),
        ] {
            assert!(demangled(mangled).starts_with(name), "{mangled}: {}", demangled(mangled));
        }
        assert_eq!(demangled(&"_Z".repeat(20_000)).len(), 256);
    }
}
