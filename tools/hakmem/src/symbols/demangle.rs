//! demangle.rs - C++ and Rust names as their authors wrote them.

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use std::fmt::{self, Write};

/// A mangled name may expand exponentially; longer ones are shown as they are.
const NAME_BYTES_MAX: usize = 16 << 10;

/// A text that refuses to grow further: a name of 400 bytes may stand for one of gigabytes.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if part.len() > NAME_BYTES_MAX - self.0.len() {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

pub fn demangled(name: &str) -> String {
    let name = name.split("@@").next().unwrap_or(name); // a version: malloc@@GLIBC_2.2.5
    if name.len() > NAME_BYTES_MAX {
        return name.chars().take(256).collect();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let mut text = Bounded(String::new());
        if write!(text, "{rust:#}").is_ok() {
            return text.0; // without the hash
        }
    }
    if name.starts_with("_Z") || name.starts_with("__Z") || name.starts_with("_GLOBAL__") {
        let limit = ParseOptions::default().recursion_limit(128);
        let options = DemangleOptions::new().hide_expression_literal_types().recursion_limit(128);
        let mut text = Bounded(String::new());
        let is_whole = Symbol::new_with_options(name, &limit)
            .is_ok_and(|symbol| symbol.structured_demangle(&mut text, &options).is_ok());
        if is_whole {
            return text.0;
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

    /// Each level names the one before it eight times, by back references of three bytes.
    #[test]
    fn a_short_name_of_gigabytes_is_not_written_out() {
        let eight = |of: &str| of.repeat(8);
        for levels in 1..=12 {
            let mut name = "_Z1f1AIiE".to_owned();
            for level in 0..levels {
                let before = if level == 0 { "S0_".to_owned() } else { format!("S{level}_") };
                name += &format!("S_I{}E", eight(&before));
            }
            let started = std::time::Instant::now();
            let shown = demangled(&name);
            assert!(shown.len() <= NAME_BYTES_MAX, "{name}");
            // The small ones are names, so the large ones would be.
            assert!(
                if levels < 4 { shown.starts_with("f(A<int>, A<A<int>, ") } else { shown == name },
                "{levels}: {shown}"
            );
            assert!(started.elapsed().as_secs() < 5, "{name}");
        }
    }
}
