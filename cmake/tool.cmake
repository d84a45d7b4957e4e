# tool.cmake - the `hakmem` command: a crate of its own, built by cargo, put beside the library.

set(crate ${PROJECT_SOURCE_DIR}/tools/hakmem)
if(HAKMEM_TOOL AND EXISTS ${crate}/Cargo.toml)
    find_program(CARGO cargo PATHS $ENV{HOME}/.cargo/bin)
    if(NOT CARGO)
        message(WARNING "cargo is missing: the hakmem command is not built (scripts/setup installs cargo)")
    else()
        set(HAKMEM_CARGO_TARGET ${crate}/target CACHE PATH "cargo's build folder, shared by all presets")
        set(cargo_env ${CMAKE_COMMAND} -E env --unset=LD_PRELOAD CARGO_TERM_COLOR=never)
        # cargo decides itself what is out of date, so it is asked every time. The copy is by rename: the
        # command may be running while it is replaced.
        add_custom_target(hakmem_tool ALL
            COMMAND ${cargo_env} ${CARGO} build --release --quiet --manifest-path ${crate}/Cargo.toml
                    --target-dir ${HAKMEM_CARGO_TARGET}
            COMMAND ${CMAKE_COMMAND} -E copy ${HAKMEM_CARGO_TARGET}/release/hakmem ${PROJECT_BINARY_DIR}/hakmem.new
            COMMAND ${CMAKE_COMMAND} -E rename ${PROJECT_BINARY_DIR}/hakmem.new ${PROJECT_BINARY_DIR}/hakmem
            COMMAND ${cargo_env} ${PROJECT_BINARY_DIR}/hakmem pages ${PROJECT_BINARY_DIR}/share
            BYPRODUCTS ${PROJECT_BINARY_DIR}/hakmem
            WORKING_DIRECTORY ${crate} VERBATIM COMMENT "Building the hakmem command")
        list(APPEND HAKMEM_PRODUCTS hakmem_tool)
        set(HAKMEM_HAVE_TOOL ON)
    endif()
endif()
