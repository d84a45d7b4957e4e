/* none.c - a negative control: a shared object that is no allocator. It is mapped, and malloc stays glibc's. */
int hakmem_bench_shim_none;
