// What Debian's libraries for WebAssembly leave out: they are built without exceptions and with a
// stack protector.
#include <cstdarg>
#include <cstddef>
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

// A page has nowhere to write to: the libraries' own bring the C library's streams along.
[[noreturn]] void __abort_message(const char*, ...) { __builtin_trap(); }
}
_LIBCPP_BEGIN_NAMESPACE_STD
[[noreturn]] void __libcpp_verbose_abort(const char*, ...) noexcept { __builtin_trap(); }
_LIBCPP_END_NAMESPACE_STD

// The C library's formatted output, with its floating point and streams, would be a hundredth of a
// module. Of the libraries' uses the compiler's need bytes and characters in hexadecimal alone, of
// nlohmann-json (fmt asks for it for hexadecimal floating point).
namespace {

// The characters that fit, and the number of all.
struct Bounded {
  char* text;
  std::size_t size;
  std::size_t count = 0;
  void put(char c) {
    if (count + 1 < size) text[count] = c;
    ++count;
  }
};

}  // namespace

extern "C" {

// Knows %x and %X of an unsigned int, filled with zeros up to a width or precision of one digit;
// traps on any other conversion.
int vsnprintf(char* text, std::size_t size, const char* format, va_list arguments) {
  Bounded out{text, size};
  for (; *format != 0; ++format) {
    if (*format != '%') {
      out.put(*format);
      continue;
    }
    ++format;
    if (*format == '0' || *format == '.') ++format;
    int digits = 1;
    if (*format >= '1' && *format <= '8') digits = *format++ - '0';
    if (*format != 'x' && *format != 'X') __builtin_trap();
    const unsigned value = va_arg(arguments, unsigned);
    while (digits < 8 && (value >> (4 * digits)) != 0) ++digits;
    const char* letters = *format == 'x' ? "0123456789abcdef" : "0123456789ABCDEF";
    while (digits-- > 0) out.put(letters[(value >> (4 * digits)) & 15U]);
  }
  if (size > 0) text[out.count < size ? out.count : size - 1] = 0;
  return static_cast<int>(out.count);
}

int snprintf(char* text, std::size_t size, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int count = vsnprintf(text, size, format, arguments);
  va_end(arguments);
  return count;
}
}
