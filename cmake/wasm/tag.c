/* The tag of C++ exceptions, which the compiler expects the unwinder to define. */
__asm__(
    ".globl __cpp_exception\n"
    ".tagtype __cpp_exception i32\n"
    "__cpp_exception:\n");
