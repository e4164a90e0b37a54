// The functions of a WebAssembly module that the page calls (web/src/module.js).
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runtime/web/host.h"

#ifdef __EMSCRIPTEN__
#include <emscripten.h>
#define TENSORGRAD_EXPORT(name) EMSCRIPTEN_KEEPALIVE
#else
#define TENSORGRAD_EXPORT(name) __attribute__((export_name(name)))
#endif

namespace tensorgrad::web {
namespace {

struct Answer {
  std::uint32_t failed = 0;
  const std::byte* begin = nullptr;
  std::uint32_t size = 0;
};

// The one object behind the C functions.
class Instance {
 public:
  const Answer* call(std::string_view request) {
    bool failed = false;
    try {
      if (!host_) {
        Models models;
        register_models(models);
        host_.emplace(std::move(models));
      }
      bytes_ = host_->call(request);
    } catch (const std::exception& error) {
      failed = true;
      const std::string text =
          nlohmann::ordered_json{{"type", type_name(error)}, {"message", error.what()}}.dump(
              -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
      const auto* begin = reinterpret_cast<const std::byte*>(text.data());
      bytes_.assign(begin, begin + text.size());
    }
    answer_ = {failed ? 1U : 0U, bytes_.data(), static_cast<std::uint32_t>(bytes_.size())};
    return &answer_;
  }
  const Answer* clear() {
    bytes_ = {};
    answer_ = {};
    return &answer_;
  }

 private:
  std::optional<ModuleHost> host_;
  std::vector<std::byte> bytes_;
  Answer answer_;
};

}  // namespace
}  // namespace tensorgrad::web

extern "C" {

/// Memory for a request.
TENSORGRAD_EXPORT("tensorgrad_alloc") void* tensorgrad_alloc(std::size_t bytes) {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
TENSORGRAD_EXPORT("tensorgrad_free") void tensorgrad_free(void* memory) { std::free(memory); }

/// Serves a request; the answer stays until the next call. Without a request, gives the answer's
/// memory back.
TENSORGRAD_EXPORT("tensorgrad_call")
const void* tensorgrad_call(const char* request, std::size_t size) {
  static tensorgrad::web::Instance instance;
  return request == nullptr ? instance.clear() : instance.call({request, size});
}
}
