// Counter-based random bits: the Threefry-2x32 block function with 20 rounds.
#include <array>
#include <bit>

#include "ops/rules.h"

namespace tensorgrad {
namespace {

using kernel::Expr;
using kernel::Fn;
using kernel::Pool;

constexpr std::uint32_t parity = 0x1BD11BDA;
constexpr std::array<std::array<int, 4>, 2> rotations{{{13, 15, 26, 6}, {17, 29, 16, 24}}};

// The block function over any type of word: `Word` offers add, xor_ and rotate, and `constant`
// makes one from a number.
template <class Word, class Arithmetic>
std::array<Word, 2> threefry_block(const Arithmetic& w, const std::array<Word, 2>& key,
                                   std::array<Word, 2> x) {
  const std::array<Word, 3> schedule{key[0], key[1],
                                     w.xor_(w.xor_(key[0], key[1]), w.constant(parity))};
  x[0] = w.add(x[0], schedule[0]);
  x[1] = w.add(x[1], schedule[1]);
  for (std::uint32_t group = 0; group < 5; ++group) {
    for (int distance : rotations[group % 2]) {
      x[0] = w.add(x[0], x[1]);
      x[1] = w.xor_(w.rotate(x[1], distance), x[0]);
    }
    x[0] = w.add(x[0], schedule[(group + 1) % 3]);
    x[1] = w.add(w.add(x[1], schedule[(group + 2) % 3]), w.constant(group + 1));
  }
  return x;
}

struct ExprWords {
  Pool& pool;
  Expr constant(std::uint32_t v) const { return pool.constant(v, DType::u32); }
  Expr add(Expr a, Expr b) const { return pool.apply(Fn::add, {a, b}); }
  Expr xor_(Expr a, Expr b) const { return pool.apply(Fn::bit_xor, {a, b}); }
  Expr rotate(Expr a, int by) const {
    const Expr high = pool.apply(Fn::shl, {a, constant(static_cast<std::uint32_t>(by))});
    const Expr low = pool.apply(Fn::shr, {a, constant(static_cast<std::uint32_t>(32 - by))});
    return pool.apply(Fn::bit_or, {high, low});
  }
};

struct NumberWords {
  static std::uint32_t constant(std::uint32_t v) { return v; }
  static std::uint32_t add(std::uint32_t a, std::uint32_t b) { return a + b; }
  static std::uint32_t xor_(std::uint32_t a, std::uint32_t b) { return a ^ b; }
  static std::uint32_t rotate(std::uint32_t a, int by) { return std::rotl(a, by); }
};

std::size_t word_of(const Attrs& attrs) {
  return static_cast<std::size_t>(std::get<IndexAttr>(attrs).index);
}

Type infer(const Op& op, std::span<const Tensor> x, const Attrs& attrs, const Site& site) {
  constexpr DType only[] = {DType::u32};
  for (const Tensor& t : x) {
    check_dtype(op, t.dtype(), only, site);
    if (t.shape() != x[0].shape()) {
      throw ShapeError(fmt::format("threefry: shapes differ: {} and {}.", to_string(x[0].shape()),
                                   to_string(t.shape())),
                       site);
    }
  }
  if (word_of(attrs) > 1) {
    throw GraphError(fmt::format("threefry: a block has words 0 and 1, not {}.",
                                 std::get<IndexAttr>(attrs).index),
                     site);
  }
  return {x[0].shape(), DType::u32};
}

// Two nodes that differ only in the word share all rounds of a kernel, as equal expressions do.
Expr lower(Pool& pool, const Node& n, std::span<const Expr> x) {
  return threefry_block<Expr>(ExprWords{pool}, {x[0], x[1]}, {x[2], x[3]})[word_of(n.attrs)];
}

RefArray reference(const Node& n, std::span<const RefArray* const> x) {
  RefArray out{n.type, std::vector<double>(x[0]->data.size())};
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const auto word = [&](std::size_t k) { return static_cast<std::uint32_t>(x[k]->data[i]); };
    out.data[i] = threefry_block<std::uint32_t>(NumberWords{}, {word(0), word(1)},
                                                {word(2), word(3)})[word_of(n.attrs)];
  }
  return out;
}

std::vector<Sample> samples() {
  std::vector<Sample> s;
  for (int word : {0, 1}) {
    for (const Shape& shape : sample_shapes()) {
      s.push_back(
          {std::vector<Type>(4, Type{shape, DType::u32}), IndexAttr{word}, 0, 4294967295.0});
    }
  }
  return s;
}

std::span<const Op> rows() {
  static const Op table[] = {
      {.name = "threefry",
       .doc = "A word of the Threefry-2x32 block (20 rounds) of a key and a counter; u32.",
       .infer = infer,
       .jvp = NotDifferentiable{"random bits are not real numbers"},
       .transpose = NotLinear{},
       .vmap = vmap_elementwise,
       .lowering = LowerMap{lower},
       .reference = reference,
       .samples = samples,
       .ulp = 0},
  };
  return table;
}

}  // namespace

std::span<const Op> random_ops() { return rows(); }

namespace prim {

Tensor threefry(const Tensor& key0, const Tensor& key1, const Tensor& x0, const Tensor& x1,
                int word, const Site& site) {
  return make(rows()[0], {key0, key1, x0, x1}, IndexAttr{word}, site);
}
std::array<std::uint32_t, 2> threefry_words(std::array<std::uint32_t, 2> key,
                                            std::array<std::uint32_t, 2> counter) {
  return threefry_block<std::uint32_t>(NumberWords{}, key, counter);
}

}  // namespace prim
}  // namespace tensorgrad
