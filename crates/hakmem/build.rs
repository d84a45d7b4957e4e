//! The library's C sources, compiled and combined as cmake/library.cmake does, into an archive of one object.
//!
//! - The flags are those of CMake's release build, in whatever profile the program is built: an allocator that was compiled without
//!   optimisation would make every debug build slow, and its fast paths rely on tail calls. test/laws/crate.py holds them equal.
//! - One object, with what is hidden localized: a link takes the whole malloc family or none of it, so that memalign never comes from
//!   libc while free is ours. `+whole-archive` makes it the whole, also where no Rust code names a function of it.
//! - `CC`, `CXX`, `AR`, `OBJCOPY` and their forms for a target (`OBJCOPY_aarch64_unknown_linux_gnu`) name other tools.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In libhakmem.so alone: they stand in front of libraries that are loaded later.
const SHARED_ONLY: [&str; 2] = ["front/dlopen.c", "front/jemallocx.c"];

const FLAGS: &[&str] = &[
    "-O2",
    "-g1",
    "-DNDEBUG",
    "-D_GNU_SOURCE",
    "-fdata-sections",
    "-fPIC",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-semantic-interposition",
    "-fno-plt",
    "-fno-builtin-malloc",
    "-fno-builtin-calloc",
    "-fno-builtin-realloc",
    "-fno-builtin-free",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fasynchronous-unwind-tables",
];
const FLAGS_C: &[&str] = &["-std=gnu11"];
const FLAGS_CXX: &[&str] = &["-std=gnu++17", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"];
/// Of C sources in src/front: types of what is exported, for gdb.
const FLAGS_FRONT: &[&str] = &["-g2"];
/// Against what the cc crate or CFLAGS may have turned on: the code stays in one section, and in objects that can be combined.
const FLAGS_AGAINST: &[&str] = &["-fno-function-sections", "-fno-lto"];

/// The code in a section of its own name: the linker gives its bounds (src/watch/stack.c). `.text.unlikely.` is clang's.
const CODE_SECTIONS: [&str; 5] =
    [".text", ".text.unlikely", ".text.unlikely.", ".text.startup", ".text.exit"];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed={}", root.join("src").display());
    println!("cargo::rerun-if-changed={}", root.join("include").display());
    for name in ["CC", "CXX", "AR", "CFLAGS", "CXXFLAGS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::metadata=include={}", root.join("include").display());
    target_check();

    let mut sources = Vec::new();
    collect(&root.join("src"), &mut sources);
    sources.sort();
    let (c, cxx) = (compiler(false), compiler(true));
    let compile = |source: &Path, object: &Path, flags: &[&[&str]]| {
        let is_c = source.extension().is_some_and(|ending| ending == "c");
        let mut command = if is_c { &c } else { &cxx }.to_command();
        command.arg("-I").arg(root.join("src")).arg("-I").arg(root.join("include"));
        command
            .args(FLAGS_AGAINST)
            .args(FLAGS)
            .args(if is_c { FLAGS_C } else { FLAGS_CXX })
            .args(flags.concat());
        run(command.arg("-o").arg(object).arg("-c").arg(source), if is_c { "CC" } else { "CXX" });
    };
    let mut objects = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let is_front = source.starts_with(root.join("src/front"))
            && source.extension().is_some_and(|ending| ending == "c");
        let object = out.join(format!("{number}.o"));
        compile(source, &object, if is_front { &[FLAGS_FRONT] } else { &[] });
        objects.push(object);
    }
    compile(Path::new("src/layout.c"), &out.join("layout.o"), &[]);
    println!("cargo::rerun-if-changed=src/layout.c");

    let combined = out.join("hakmem.o");
    run(c.to_command().arg("-fno-lto").args(["-r", "-nostdlib", "-o"]).arg(&combined).args(&objects), "CC");
    let mut objcopy = Command::new(objcopy(c.path()));
    objcopy.arg("--localize-hidden");
    for section in CODE_SECTIONS {
        objcopy.arg("--rename-section").arg(format!("{section}=hakmem_text"));
    }
    run(objcopy.arg(&combined), "OBJCOPY");
    cc::Build::new().cargo_metadata(false).object(&combined).compile("hakmem");

    counters(&root, &out);
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static:+whole-archive=hakmem");
}

fn target_check() {
    let of = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let (system, libc, machine) = (of("OS"), of("ENV"), of("ARCH"));
    if system != "linux"
        || libc != "gnu"
        || !["x86_64", "aarch64"].contains(&machine.as_str())
        || of("POINTER_WIDTH") != "64"
    {
        eprintln!(
            "hakmem: {machine} {system} {libc}: the allocator is for Linux with glibc on x86-64 and aarch64"
        );
        std::process::exit(1);
    }
}

/// Every source below the folder that the static library has.
fn collect(folder: &Path, sources: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|ending| ending == "c" || ending == "cc")
            && !SHARED_ONLY.iter().any(|name| path.ends_with(name))
        {
            sources.push(path);
        }
    }
}

/// The names of counters, in their order.
fn counters(root: &Path, out: &Path) {
    let table = std::fs::read_to_string(root.join("src/rules/counters.def")).expect("src/rules/counters.def");
    let names: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("HAK_COUNTER(")?.split_once(','))
        .map(|(name, _)| name.trim())
        .collect();
    let text = format!(
        "/// In the order of `counter[]`.\nconst COUNTER_NAMES: [&str; {}] = {names:?};\n",
        names.len()
    );
    std::fs::write(out.join("counters.rs"), text).expect("OUT_DIR is ours");
}

/// The target's compiler, by the ways in which cc finds one. Our flags come after what CC and CFLAGS bring, where the last one counts.
fn compiler(is_cxx: bool) -> cc::Tool {
    let mut build = cc::Build::new();
    build.cpp(is_cxx).cargo_metadata(false);
    // What follows the profile of the program by default.
    build.opt_level(2).debug(false).force_frame_pointer(false).inherit_rustflags(false).warnings(false);
    build.get_compiler()
}

/// objcopy of the compiler's own tools: `aarch64-linux-gnu-objcopy` beside `aarch64-linux-gnu-gcc`.
fn objcopy(compiler: &Path) -> OsString {
    let target = env::var("TARGET").unwrap_or_default();
    for name in
        [format!("OBJCOPY_{target}"), format!("OBJCOPY_{}", target.replace('-', "_")), "OBJCOPY".into()]
    {
        println!("cargo::rerun-if-env-changed={name}");
        if let Some(named) = env::var_os(&name) {
            return named;
        }
    }
    let file = compiler.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match file.split_once("-gcc").or_else(|| file.split_once("-cc")) {
        Some((prefix, _)) => compiler.with_file_name(format!("{prefix}-objcopy")).into(),
        None if file.starts_with("clang") && env::var("HOST").unwrap_or_default() != target => {
            "llvm-objcopy".into()
        }
        None => "objcopy".into(),
    }
}

fn run(command: &mut Command, variable: &str) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?}: {status}"),
        Err(error) => panic!("{command:?}: {error}; {variable} names another program"),
    }
}
