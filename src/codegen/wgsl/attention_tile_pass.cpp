#include "codegen/wgsl/attention_tile_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tensorgrad::wgsl {

using kernel::Access;
using kernel::Attention;
using kernel::Kernel;

namespace {

constexpr const char* components = "xyzw";

bool is_multiple_of_four(std::int64_t n) { return n % 4 == 0; }

}  // namespace

TilePass::TilePass(const Kernel& kernel, const Attention& attention, const Target& target,
                   const std::vector<bool>& writable, const AttentionTile& tile,
                   std::int64_t batches, std::int64_t rows, std::int64_t streamed, bool last_first)
    : AttentionPass(kernel, attention, target, writable, tile.invocations(),
                    batches * tile.tiles(rows)),
      kernel_(kernel),
      tile_(tile),
      rows_(rows),
      streamed_(streamed) {
  const std::int64_t tiles = tile.tiles(rows);
  line("let batch = group / {}u;", tiles);
  const std::string number = fmt::format("group % {}u", tiles);
  line("let start = {} * {}u;", last_first ? fmt::format("({}u - {})", tiles - 1, number) : number,
       tile_.own());
  line("let lane = local % {}u;", tile_.lanes);
  line("let own = local / {}u;", tile_.lanes);
  // Barriers are for all: rows beyond the last compute it once more, and store nothing.
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    line("let row{} = min(start + own + {}u, {}u);", i, i * tile_.groups, rows - 1);
  }
}

void TilePass::matrix(const char* name, const Access& access, std::int64_t columns) {
  base(name, access);
  const bool wide =
      columns % 4 == 0 && access.offset % 4 == 0 &&
      std::all_of(access.strides.begin(), access.strides.end() - 1, is_multiple_of_four) &&
      kernel_.args[static_cast<std::size_t>(access.buffer)].elements % 4 == 0;
  if (!wide) narrow_.insert(access.buffer);
  if (wide && !narrow_.contains(access.buffer)) wide_.insert(access.buffer);
  if (!wide) wide_.erase(access.buffer);
}

void TilePass::numbers(const char* name, const Access& access) {
  base(name, access);
  narrow_.insert(access.buffer);
  wide_.erase(access.buffer);
}

void TilePass::mask() {
  if (a_.mask.buffer >= 0) numbers("mask", a_.mask);
}

void TilePass::know_vectors() {
  for (const int arg : wide_) builder().use_vectors(arg);
}

std::string TilePass::four_of(const char* name, const Access& access, std::int64_t columns) {
  return four(name, access, columns, wide_.contains(access.buffer));
}

std::int64_t TilePass::width(std::int64_t columns) const {
  return (quads(columns) + tile_.lanes - 1) / tile_.lanes * tile_.lanes;
}

void TilePass::stage_own(StagedMatrix& s) {
  const std::int64_t w = width(s.columns);
  s.array = builder().workgroup_array("vec4<f32>", tile_.own() * (w + 1));
  open("for (var i = local; i < {}u; i += {}u)", tile_.own() * w, tile_.invocations());
  line("let c = i % {}u;", w);
  line("let row = min(start + i / {}u, {}u);", w, rows_ - 1);
  const std::string read = fmt::format("{}({}, c)", four_of(s.name, *s.access, s.columns),
                                       row_of(s.name, *s.access, "row"));
  const std::string to = fmt::format("{}[i / {}u * {}u + c]", s.array, w, w + 1);
  if (w > quads(s.columns)) {
    line("var four = vec4<f32>();");
    line("if (c < {}u) {{ four = {}; }}", quads(s.columns), read);
    line("{} = four;", to);
  } else {
    line("{} = {};", to, read);
  }
  close();
}

void TilePass::products(const char* prefix, const StagedMatrix& own, const StagedMatrix& streamed) {
  each([&](std::int64_t i, std::int64_t j) { line("var {}{}_{} = 0f;", prefix, i, j); });
  open("for (var c = 0u; c < {}u; c++)", quads(own.columns));
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    line("let a{} = {}[(own + {}u) * {}u + c];", i, own.array, i * tile_.groups,
         width(own.columns) + 1);
  }
  for (std::int64_t j = 0; j < 4; ++j) {
    line("let o{} = {}[(lane + {}u) * {}u + c];", j, streamed.array, j * tile_.lanes,
         width(streamed.columns) + 1);
  }
  each([&](std::int64_t i, std::int64_t j) {
    const std::string name = fmt::format("{}{}_{}", prefix, i, j);
    std::string value = name;
    for (int k = 0; k < 4; ++k) {
      value = fmt::format("fma(a{0}.{2}, o{1}.{2}, {3})", i, j, components[k], value);
    }
    line("{} = {};", name, value);
  });
  close();
}

void TilePass::zero(const char* prefix, std::int64_t columns) {
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    for (std::int64_t c = 0; c < width(columns) / tile_.lanes; ++c) {
      line("var {}{}_{} = vec4<f32>();", prefix, i, c);
    }
  }
}

void TilePass::scale(const char* prefix, std::int64_t columns, const char* factor) {
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    for (std::int64_t c = 0; c < width(columns) / tile_.lanes; ++c) {
      line("{0}{1}_{2} *= {3}{1};", prefix, i, c, factor);
    }
  }
}

std::string TilePass::weights() {
  return builder().workgroup_array("vec4<f32>", tile_.own() * (tile_.lanes + 1));
}

void TilePass::store_weights(const std::string& array, const char* prefix) {
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    line("{0}[(own + {1}u) * {2}u + lane] = vec4<f32>({3}{4}_0, {3}{4}_1, {3}{4}_2, {3}{4}_3);",
         array, i * tile_.groups, tile_.lanes + 1, prefix, i);
  }
}

void TilePass::accumulate(const char* prefix, const std::string& array, const StagedMatrix& s) {
  on_and_off_diagonal([&](bool diagonal) { add(prefix, array, s, diagonal); });
}

void TilePass::add(const char* prefix, const std::string& array, const StagedMatrix& s,
                   bool diagonal) {
  const std::int64_t w = width(s.columns);
  open("for (var r = 0u; r < {}u; r++)", tile_.lanes);
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    line("let p{} = {}[(own + {}u) * {}u + r];", i, array, i * tile_.groups, tile_.lanes + 1);
  }
  for (std::int64_t j = 0; j < 4; ++j) {
    if (diagonal) {
      line("let u{} = block + r * 4u + {}u;", j, j);
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        line("let n{}_{} = {};", i, j, counts(i, fmt::format("u{}", j), true));
      }
    }
    for (std::int64_t c = 0; c < w / tile_.lanes; ++c) {
      line("let o{}_{} = {}[(r + {}u) * {}u + lane + {}u];", j, c, s.array, j * tile_.lanes, w + 1,
           c * tile_.lanes);
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        const std::string sum = fmt::format("{}{}_{}", prefix, i, c);
        const std::string value =
            fmt::format("fma(vec4<f32>(p{}.{}), o{}_{}, {})", i, components[j], j, c, sum);
        if (diagonal) {
          line("{0} = select({0}, {1}, n{2}_{3});", sum, value, i, j);
        } else {
          line("{} = {};", sum, value);
        }
      }
    }
  }
  close();
}

std::string TilePass::counts(std::int64_t i, const std::string& u, bool diagonal) const {
  const std::string exists = reaches_beyond() ? fmt::format("{} < {}u", u, streamed_) : "";
  if (!diagonal) return exists;
  const std::string before =
      owns_queries_ ? fmt::format("{} <= row{}", u, i) : fmt::format("row{} <= {}", i, u);
  if (exists.empty()) return before;
  // Not &&, which is a branch: a compiler that keeps the many of an unrolled tile takes minutes and
  // gigabytes.
  return fmt::format("({}) & ({})", exists, before);
}

void TilePass::streamed_rows() {
  for (std::int64_t j = 0; j < 4; ++j) {
    line("let u{} = block + lane * 4u + {}u;", j, j);
    line("let v{0} = min(u{0}, {1}u);", j, streamed_ - 1);
  }
}

void TilePass::scores(const char* prefix, bool diagonal) {
  each([&](std::int64_t i, std::int64_t j) {
    const std::string name = fmt::format("{}{}_{}", prefix, i, j);
    const std::string mine = fmt::format("row{}", i);
    const std::string other = fmt::format("v{}", j);
    std::string text = score_of(name, owns_queries_ ? mine : other, owns_queries_ ? other : mine);
    const std::string condition = counts(i, fmt::format("u{}", j), diagonal);
    if (!condition.empty()) text = fmt::format("select(-3.4e38f, {}, {})", text, condition);
    line("{} = {};", name, text);
  });
}

void TilePass::combine(const char* name, bool largest) {
  if (shared_.empty()) {
    shared_ = builder().workgroup_array("f32", tile_.own() * (tile_.lanes + 1));
  }
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    line("{}[(own + {}u) * {}u + lane] = {}{};", shared_, i * tile_.groups, tile_.lanes + 1, name,
         i);
  }
  barrier();
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    line("{}{} = {}[(own + {}u) * {}u];", name, i, shared_, i * tile_.groups, tile_.lanes + 1);
  }
  open("for (var l = 1u; l < {}u; l++)", tile_.lanes);
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    line("let x{} = {}[(own + {}u) * {}u + l];", i, shared_, i * tile_.groups, tile_.lanes + 1);
    if (largest) {
      line("{0}{1} = select({0}{1}, x{1}, x{1} > {0}{1});", name, i);
    } else {
      line("{0}{1} += x{1};", name, i);
    }
  }
  close();
}

void TilePass::store(const char* prefix, const Access& access, std::int64_t columns,
                     const std::string& factor) {
  for (std::int64_t i = 0; i < tile_.rows; ++i) {
    open("if ({})", is_row(i));
    line("let to = {};", row_of(prefix, access, fmt::format("row{}", i)));
    for (std::int64_t k = 0; k < width(columns) / tile_.lanes; ++k) {
      const std::string value = fmt::format("{}{}_{}{}", prefix, i, k,
                                            fmt::format(fmt::runtime(factor), fmt::arg("i", i)));
      open_if(width(columns) > quads(columns)
                  ? fmt::format("lane + {}u < {}u", k * tile_.lanes, quads(columns))
                  : "");
      if (wide_.contains(access.buffer)) {
        line("b{}[to / 4u + lane + {}u] = {};", access.buffer, k * tile_.lanes, value);
      } else {
        store_narrow(access, columns, k, value);
      }
      close_if();
    }
    close();
  }
}

void TilePass::store_narrow(const Access& access, std::int64_t columns, std::int64_t k,
                            const std::string& value) {
  line("let four = {};", value);
  line("let c = (lane + {}u) * 4u;", k * tile_.lanes);
  for (int n = 0; n < 4; ++n) {
    const std::string one =
        fmt::format("b{}[to + c + {}u] = four.{};", access.buffer, n, components[n]);
    if (n == 0 || columns % 4 == 0) {
      line("{}", one);
    } else {
      line("if (c + {}u < {}u) {{ {} }}", n, columns, one);
    }
  }
}

std::string TilePass::is_row(std::int64_t i) const {
  return fmt::format("start + own + {}u < {}u", i * tile_.groups, rows_);
}

bool TilePass::reaches_beyond() const {
  return streamed_ % tile_.streamed() != 0 ||
         (starts_anywhere() && tile_.own() % tile_.streamed() != 0);
}

std::string TilePass::stream_end() const {
  if (!a_.causal || !owns_queries_) return fmt::format("{}u", streamed_);
  return fmt::format("min(start + {}u, {}u)", tile_.own(), streamed_);
}

std::int64_t TilePass::copied(const StagedMatrix& s) const {
  const std::int64_t all = tile_.streamed() * width(s.columns);
  return (all + tile_.invocations() - 1) / tile_.invocations();
}

std::string TilePass::vector_of(std::int64_t k) const {
  return k == 0 ? "local" : fmt::format("(local + {}u)", k * tile_.invocations());
}

void TilePass::read(const StagedMatrix& s, std::int64_t k, const std::string& block) {
  const std::int64_t w = width(s.columns);
  const std::string i = vector_of(k);
  std::string condition;
  const auto only_if = [&](bool needed, const std::string& test) {
    if (needed) condition += condition.empty() ? test : " && " + test;
  };
  // What reaches beyond the tile is not copied.
  only_if(reaches_beyond() || (k + 1) * tile_.invocations() > tile_.streamed() * w,
          fmt::format("{} + {} / {}u < {}u", block, i, w, streamed_));
  only_if(w > quads(s.columns), fmt::format("{} % {}u < {}u", i, w, quads(s.columns)));
  const std::string value =
      fmt::format("{}({}, {} % {}u)", four_of(s.name, *s.access, s.columns),
                  row_of(s.name, *s.access, fmt::format("({} + {} / {}u)", block, i, w)), i, w);
  if (condition.empty()) {
    line("{}_next{} = {};", s.name, k, value);
    return;
  }
  line("{}_next{} = vec4<f32>();", s.name, k);
  line("if ({}) {{ {}_next{} = {}; }}", condition, s.name, k, value);
}

void TilePass::place(const StagedMatrix& s, std::int64_t k) {
  const std::int64_t w = width(s.columns);
  const std::string i = vector_of(k);
  const std::string text =
      fmt::format("{0}[({1} / {2}u % 4u * {3}u + {1} / {4}u) * {5}u + {1} % {2}u] = {6}_next{7};",
                  s.array, i, w, tile_.lanes, 4 * w, w + 1, s.name, k);
  if ((k + 1) * tile_.invocations() > tile_.streamed() * w) {
    line("if ({} < {}u) {{ {} }}", i, tile_.streamed() * w, text);
  } else {
    line("{}", text);
  }
}

void TilePass::open_stream(std::vector<StagedMatrix*> matrices, std::int64_t sums) {
  stream_ = std::move(matrices);
  // What an invocation reads comes all at once, so that it waits once for all of it; ahead where
  // registers are left. A gradient of 96 x 1024 x 1024 x 64 took an H200 3.81 ms with one read
  // after the other, 2.81 ms like this; its pass of keys is slower when it reads ahead, too.
  constexpr std::int64_t numbers_ahead = 96;
  constexpr std::int64_t vectors_at_once = 8;
  std::int64_t ahead = 0;
  for (StagedMatrix* s : stream_) {
    s->array = builder().workgroup_array("vec4<f32>", tile_.streamed() * (width(s->columns) + 1));
    ahead += 4 * copied(*s);
  }
  reads_ahead_ = sums + ahead <= numbers_ahead;
  for (const StagedMatrix* s : stream_) {
    for (std::int64_t k = 0; k < copied(*s); ++k) {
      line("var {}_next{} = vec4<f32>();", s->name, k);
      if (reads_ahead_) read(*s, k, starts_anywhere() ? "start" : "0u");
    }
  }
  open("for (var block = {}; block < {}; block += {}u)", starts_anywhere() ? "start" : "0u",
       stream_end(), tile_.streamed());
  for (const StagedMatrix* s : stream_) {
    for (std::int64_t first = 0; first < copied(*s); first += vectors_at_once) {
      const std::int64_t end = std::min(first + vectors_at_once, copied(*s));
      for (std::int64_t k = first; k < end && !reads_ahead_; ++k) read(*s, k, "block");
      for (std::int64_t k = first; k < end; ++k) place(*s, k);
    }
  }
}

void TilePass::read_ahead() {
  if (!reads_ahead_) return;
  open("if (block + {}u < {})", tile_.streamed(), stream_end());
  for (const StagedMatrix* s : stream_) {
    for (std::int64_t k = 0; k < copied(*s); ++k) {
      read(*s, k, fmt::format("(block + {}u)", tile_.streamed()));
    }
  }
  close();
}

std::string TilePass::meets_diagonal() const {
  return owns_queries_ ? fmt::format("block + {}u > start", tile_.streamed() - 1)
                       : fmt::format("block < start + {}u", tile_.own() - 1);
}

void TilePass::open_if(const std::string& condition) {
  conditional_ = !condition.empty();
  if (conditional_) open("if ({})", condition);
}

void TilePass::close_if() {
  if (conditional_) close();
}

}  // namespace tensorgrad::wgsl
