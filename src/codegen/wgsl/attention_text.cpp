#include "codegen/wgsl/attention_text.h"

#include "codegen/wgsl/contract_text.h"

namespace tensorgrad::wgsl {

using kernel::Access;
using kernel::Attention;
using kernel::Kernel;

AttentionPass::AttentionPass(const Kernel& kernel, const Attention& attention, const Target& target,
                             const std::vector<bool>& writable, std::int64_t invocations,
                             std::int64_t groups)
    : a_(attention),
      builder_(kernel, target, writable, invocations, groups),
      writer_(builder_.writer()) {}

void AttentionPass::base(std::string_view name, const Access& access) {
  const std::vector<std::int64_t> strides(
      access.strides.begin(),
      access.strides.begin() + static_cast<std::ptrdiff_t>(a_.batch.size()));
  line("let {}_base = {};", name,
       sum(number(access.offset), affine("batch", merged(a_.batch, strides))));
}

std::string AttentionPass::row_of(std::string_view name, const Access& access,
                                  const std::string& row) {
  const std::int64_t stride = access.strides[access.strides.size() - 2];
  return fmt::format("{}_base + {} * {}u", name, row, stride);
}

std::string AttentionPass::four(std::string_view name, const Access& access, std::int64_t columns,
                                bool wide) {
  std::string function = fmt::format("{}_four", name);
  if (!declared_.insert(function).second) return function;
  std::string text = fmt::format("fn {}(at: u32, c: u32) -> vec4<f32> {{\n", function);
  if (wide) {
    text += fmt::format("  return b{}[at / 4u + c];\n}}\n\n", access.buffer);
  } else {
    text += "  let i = at + c * 4u;\n";
    const auto read = [&](int k) {
      if (k == 0 || columns % 4 == 0) {
        return fmt::format("b{}[i{}]", access.buffer, k == 0 ? "" : fmt::format(" + {}u", k));
      }
      return fmt::format(
          "select(0f, b{0}[i + select(0u, {1}u, c * 4u + {1}u < {2}u)], "
          "c * 4u + {1}u < {2}u)",
          access.buffer, k, columns);
    };
    text += fmt::format("  return vec4<f32>({}, {}, {}, {});\n}}\n\n", read(0), read(1), read(2),
                        read(3));
  }
  builder_.add_function(text);
  return function;
}

std::string AttentionPass::score_of(const std::string& product, const std::string& query,
                                    const std::string& key) const {
  std::string text = fmt::format("{} * {}", product, finite_literal(DType::f32, a_.scale));
  if (a_.mask.buffer >= 0) {
    text += fmt::format(" + b{}[{} + {}]", a_.mask.buffer, row_of("mask", a_.mask, query), key);
  }
  return text;
}

std::string AttentionPass::exponential(const std::string& score, const std::string& by) {
  return fmt::format("select({0}({1} - {2}), 0f, {1} < -3e38f)", builder_.helpers().use("tg_exp"),
                     score, by);
}

std::string AttentionPass::lse_at(const std::string& query) const {
  return fmt::format("b{}[lse_base + {} * {}u]", a_.lse.buffer, query, a_.lse.strides.back());
}

std::string AttentionPass::delta_at(const std::string& query) {
  return fmt::format("{}[batch * {}u + {}]", builder_.scratch(0), a_.queries, query);
}

}  // namespace tensorgrad::wgsl
