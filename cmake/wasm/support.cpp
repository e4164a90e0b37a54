// What Debian's libraries for WebAssembly leave out: they are built without exceptions and with a
// stack protector.
#include <new>
#include <string>
#include <typeinfo>

// Instantiated here with exceptions: the library's own aborts instead of throwing.
template class std::basic_string<char>;

// The exceptions in flight, of the one thread.
namespace __cxxabiv1 {
struct __cxa_eh_globals {
  void* caughtExceptions;
  unsigned uncaughtExceptions;
};
extern "C" {
__cxa_eh_globals* __cxa_get_globals() {
  static __cxa_eh_globals globals;
  return &globals;
}
__cxa_eh_globals* __cxa_get_globals_fast() { return __cxa_get_globals(); }
}
}  // namespace __cxxabiv1

extern "C" {
[[noreturn]] void __cxa_bad_cast() { throw std::bad_cast(); }
[[noreturn]] void __cxa_bad_typeid() { throw std::bad_typeid(); }
[[noreturn]] void __cxa_throw_bad_array_new_length() { throw std::bad_array_new_length(); }

__UINTPTR_TYPE__ __stack_chk_guard = 0x9d3f00a7;
[[noreturn]] void __stack_chk_fail() { __builtin_trap(); }
}
