#include "codegen/wgsl/contract_epilogue.h"

#include <algorithm>
#include <utility>

#include "codegen/wgsl/expressions.h"
#include "graph/order.h"
#include "kernel/visit.h"

namespace tensorgrad::wgsl {
namespace {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Pool;

/// Dimensions in memory order, those that nest merged: equal for equal sets of places.
std::vector<Dim> normal_form(std::vector<Dim> dims) {
  std::erase_if(dims, [](const Dim& dim) { return dim.extent == 1; });
  sort_values(dims, [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
  Extents extents;
  Extents strides;
  for (const Dim& dim : dims) {
    extents.push_back(dim.extent);
    strides.push_back(dim.stride);
  }
  return merged(extents, strides);
}

bool same(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Dim& x, const Dim& y) {
    return x.extent == y.extent && x.stride == y.stride;
  });
}

/// Whether positions are distinct and in mixed radix: each stride passes all that lies below it.
bool is_mixed_radix(std::vector<Dim> dims) {
  sort_values(dims, [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  std::int64_t reach = 0;
  for (const Dim& dim : dims) {
    if (dim.extent == 1) continue;
    if (dim.stride <= reach) return false;
    reach += dim.stride * (dim.extent - 1);
  }
  return true;
}

/// A store of the nest, in terms of the digits of z, m and n.
struct MappedStore {
  kernel::Store store;
  DType dtype = DType::f32;
};

/// Writes the nest's stages over again as functions of a result's place.
class Mapper {
 public:
  Mapper(const Kernel& kernel, const Problem& problem)
      : original_(kernel), problem_(problem), kernel_(kernel) {
    add_digits("z", problem.batch, problem.out.batch);
    add_digits("m", problem.m, problem.out.m);
    add_digits("n", problem.n, problem.out.n);
    place_ = kernel_.pool.number(problem.out.offset);
    for (const Digit& digit : digits_) {
      place_ = kernel_.pool.add(place_, kernel_.pool.mul(digit.index, digit.stride));
    }
  }

  /// False where the nest is no map over the results.
  bool run() {
    std::vector<Dim> places;
    for (const Digit& digit : digits_) places.push_back({digit.extent, digit.stride});
    if (!is_mixed_radix(places)) return false;
    bool keeps_result = false;
    for (const kernel::Stage& stage : original_.nest.stages) {
      if (!stage.accumulators.empty() || !map_stage(stage, normal_form(places))) return false;
    }
    for (const MappedStore& mapped : stores_) {
      keeps_result = keeps_result || mapped.store.buffer == problem_.out.arg;
    }
    if (!reads_are_in_place()) return false;
    if (!keeps_result) {
      const Expr result = kernel_.pool.load(problem_.out.arg, place_, {}, DType::f32);
      stores_.insert(stores_.begin(), {{problem_.out.arg, place_, result, {}, false}, DType::f32});
    }
    return true;
  }

  Epilogue render(bool vectors, WideArgs& wide) {
    choose_vectors(vectors, wide);
    Epilogue epilogue;
    Helpers helpers;
    Lines text;
    text.open("struct Finished");
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      text.line("v{}: {},", i, value_type(stores_[i].dtype));
    }
    text.close();
    std::string functions = text.text();
    functions += render_values(helpers, wide);
    functions += wide_ ? render_vector_stores(helpers) : render_scalar_stores(helpers);
    for (const MappedStore& mapped : stores_) epilogue.writes.insert(mapped.store.buffer);
    for_each_load([&](const ExprNode& load, std::size_t) {
      if (load.buffer != problem_.out.arg) epilogue.reads.insert(load.buffer);
    });
    epilogue.functions = helpers.definitions() + functions;
    return epilogue;
  }

 private:
  struct Digit {
    std::string text;  ///< WGSL
    int loop = -1;
    std::int64_t extent = 1, stride = 0;
    Index index;
  };

  void add_digits(const std::string& variable, const Extents& extents, const Extents& strides) {
    std::int64_t inner = 1;
    for (const auto extent : extents) inner *= extent;
    bool is_first = true;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (extents[i] == 1) continue;
      inner /= extents[i];
      Digit digit;
      digit.text = variable;
      if (inner != 1) digit.text += fmt::format(" / {}u", inner);
      if (!is_first) digit.text += fmt::format(" % {}u", extents[i]);
      if (digit.text != variable) digit.text = "(" + digit.text + ")";
      digit.loop = static_cast<int>(kernel_.loops.size());
      digit.extent = extents[i];
      digit.stride = strides[i];
      kernel_.loops.push_back({extents[i]});
      digit.index = kernel_.pool.loop(digit.loop, extents[i]);
      digits_.push_back(digit);
      is_first = false;
    }
  }

  std::vector<Expr> parts(const kernel::Store& store) const {
    std::vector<Expr> all{store.value};
    if (store.cond.defined()) all.push_back(store.cond);
    return all;
  }

  /// Calls fn(load, position of its store) for every load of the mapped stores.
  template <class F>
  void for_each_load(F fn) const {
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      const auto visit = [&](const ExprNode& node) {
        if (node.fn == Fn::load) fn(node, i);
      };
      const auto ignore = [](const IndexNode&) {};
      for (const Expr part : parts(stores_[i].store)) {
        kernel::for_each_part(kernel_.pool, part, ignore, visit);
      }
      kernel::for_each_part(kernel_.pool, stores_[i].store.index, ignore, visit);
    }
  }

  /// The factor of each loop in the place that a stage reads results at.
  bool read_place(const kernel::Stage& stage, std::vector<Dim>& dims, std::vector<int>& loops) {
    std::optional<Index> place;
    bool is_same = true;
    for (const kernel::Store& store : stage.stores) {
      for (const Expr part : parts(store)) {
        kernel::for_each_part(
            original_.pool, part, [](const IndexNode&) {},
            [&](const ExprNode& node) {
              if (node.fn != Fn::load || node.buffer != problem_.out.arg) return;
              is_same = is_same && (!place || *place == node.index) && node.args[0] < 0;
              place = node.index;
            });
      }
    }
    if (!place || !is_same) return false;
    const IndexNode& sum = original_.pool.node(*place);
    const auto add = [&](const IndexNode& atom, std::int64_t factor) {
      if (atom.kind != IndexNode::Kind::loop || factor <= 0) return false;
      dims.push_back({atom.hi + 1, factor});
      loops.push_back(atom.var);
      return true;
    };
    if (sum.kind != IndexNode::Kind::sum) return problem_.out.offset == 0 && add(sum, 1);
    if (sum.constant != problem_.out.offset) return false;
    return std::all_of(sum.terms.begin(), sum.terms.end(), [&](const auto& term) {
      return add(original_.pool.node(Index{term.first}), term.second);
    });
  }

  bool map_stage(const kernel::Stage& stage, const std::vector<Dim>& places) {
    std::vector<Dim> dims;
    std::vector<int> loops;
    if (!read_place(stage, dims, loops) || !is_mixed_radix(dims) ||
        !same(normal_form(dims), places)) {
      return false;
    }
    std::vector<int> scope = original_.nest.outer;
    scope.insert(scope.end(), stage.loops.begin(), stage.loops.end());
    for (const int loop : scope) {
      const std::int64_t extent = original_.loops[static_cast<std::size_t>(loop)].extent;
      if (extent != 1 && std::find(loops.begin(), loops.end(), loop) == loops.end()) return false;
    }
    Pool& pool = kernel_.pool;
    const Index relative = pool.sub(place_, pool.number(problem_.out.offset));
    Pool::Mapping mapping;
    mapping.loop = [&](int var, std::int64_t extent) {
      const auto at = std::find(loops.begin(), loops.end(), var);
      if (at == loops.end()) return pool.loop(var, extent);
      const Dim& dim = dims[static_cast<std::size_t>(at - loops.begin())];
      return pool.mod(pool.div(relative, dim.stride), dim.extent);
    };
    for (const kernel::Store& store : stage.stores) {
      MappedStore mapped{store, original_.args[static_cast<std::size_t>(store.buffer)].dtype};
      if (store.accumulate) return false;
      mapped.store.index = pool.rewrite(store.index, mapping);
      mapped.store.value = pool.rewrite(store.value, mapping);
      if (store.cond.defined()) mapped.store.cond = pool.rewrite(store.cond, mapping);
      stores_.push_back(mapped);
    }
    stage_ends_.push_back(stores_.size());
    return true;
  }

  /// Whether results are read at their own place, and other buffers that are written only where
  /// this very result is written, before it is.
  bool reads_are_in_place() const {
    bool fine = true;
    for_each_load([&](const ExprNode& load, std::size_t by) {
      if (load.buffer == problem_.out.arg) {
        fine = fine && load.index == place_;
        return;
      }
      for (std::size_t i = 0; i < stores_.size(); ++i) {
        const kernel::Store& store = stores_[i].store;
        if (store.buffer != load.buffer) continue;
        fine = fine && load.index == store.index && stage_of(by) <= stage_of(i);
      }
    });
    // A result that is overwritten in place is overwritten last: later stages read the raw one.
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      const kernel::Store& store = stores_[i].store;
      if (store.buffer == problem_.out.arg) fine = fine && store.index == place_;
    }
    for (std::size_t s = 0; s + 1 < stage_ends_.size(); ++s) {
      for (std::size_t i = 0; i < stage_ends_[s]; ++i) {
        fine = fine && stores_[i].store.buffer != problem_.out.arg;
      }
    }
    return fine;
  }
  std::size_t stage_of(std::size_t store) const {
    return static_cast<std::size_t>(
        std::upper_bound(stage_ends_.begin(), stage_ends_.end(), store) - stage_ends_.begin());
  }

  /// The stride of n's innermost digit in an index, or 0 where it is not a plain one.
  bool runs_along_n(Index index) const {
    if (digits_.empty() || problem_.n.empty() || problem_.n.back() % 4 != 0) return false;
    const int last = digits_.back().loop;
    const auto is_whole = [&](std::int64_t value) { return value % 4 == 0; };
    const IndexNode& sum = kernel_.pool.node(index);
    if (sum.kind != IndexNode::Kind::sum) {
      return sum.kind == IndexNode::Kind::loop && sum.var == last;
    }
    bool found = false;
    for (const auto& [atom, factor] : sum.terms) {
      const IndexNode& node = kernel_.pool.node(Index{atom});
      if (node.kind != IndexNode::Kind::loop) return false;
      if (node.var == last) {
        found = factor == 1;
        if (!found) return false;
      } else if (!is_whole(factor)) {
        return false;
      }
    }
    return found && is_whole(sum.constant);
  }

  /// Vectors are stored where every store runs along n. Reads of wide arguments take an element of
  /// a vector; a read with a condition asks for single elements.
  void choose_vectors(bool vectors, WideArgs& wide) {
    wide_ = vectors;
    for (const MappedStore& mapped : stores_) {
      const auto& arg = original_.args[static_cast<std::size_t>(mapped.store.buffer)];
      wide_ = wide_ && !mapped.store.cond.defined() && arg.elements % 4 == 0 &&
              runs_along_n(mapped.store.index);
    }
    for_each_load([&](const ExprNode& load, std::size_t) {
      const bool is_single = load.args[0] >= 0 || !is_floating(load.dtype);
      if (!is_single) return;
      wide.erase(load.buffer);
      for (const MappedStore& mapped : stores_) {
        if (mapped.store.buffer == load.buffer) wide_ = false;
      }
    });
    for (const MappedStore& mapped : stores_) {
      const auto visit = [&](const ExprNode& node) {
        if (node.fn == Fn::load) wide.erase(node.buffer);
      };
      const auto ignore = [](const IndexNode&) {};
      kernel::for_each_part(kernel_.pool, mapped.store.index, ignore, visit);
      if (mapped.store.cond.defined()) {
        kernel::for_each_part(kernel_.pool, mapped.store.cond, ignore, visit);
      }
    }
    if (!wide_) return;
    for (const MappedStore& mapped : stores_) wide.insert(mapped.store.buffer);
  }

  void bind(ExpressionRenderer& expressions) const {
    for (const Digit& digit : digits_) {
      Rendered text = named(digit.text);
      expressions.bind_loop(digit.loop, text);
    }
  }

  std::string render_values(Helpers& helpers, const WideArgs& wide) const {
    Writer writer;
    ExpressionRenderer expressions(kernel_, writer, helpers);
    bind(expressions);
    expressions.set_load_hook([&](const ExprNode& load) -> std::optional<Rendered> {
      if (load.buffer == problem_.out.arg) return named("value");
      if (!wide.contains(load.buffer)) return std::nullopt;
      const std::string read_as = element(load.buffer, expressions.render(load.index).text, wide);
      Rendered read = named(from_memory(load.dtype, read_as));
      read.trivial = false;
      return read;
    });
    for (const MappedStore& mapped : stores_) expressions.count(mapped.store.value);
    std::string values;
    for (const MappedStore& mapped : stores_) {
      if (!values.empty()) values += ", ";
      values += expressions.render(mapped.store.value).text;
    }
    writer.line(fmt::format("return Finished({});", values));
    return fmt::format("fn finished(z: u32, m: u32, n: u32, value: f32) -> Finished {{\n{}}}\n",
                       writer.text());
  }

  std::string render_scalar_stores(Helpers& helpers) const {
    Writer writer;
    ExpressionRenderer expressions(kernel_, writer, helpers);
    bind(expressions);
    for (const MappedStore& mapped : stores_) {
      expressions.count(mapped.store.index);
      if (mapped.store.cond.defined()) expressions.count(mapped.store.cond);
    }
    expressions.set_load_hook([&](const ExprNode& load) -> std::optional<Rendered> {
      if (load.buffer == problem_.out.arg) return named("value");
      return std::nullopt;
    });
    writer.line("let result = finished(z, m, n, value);");
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      const kernel::Store& store = stores_[i].store;
      const std::string index = expressions.render(store.index).text;
      if (store.cond.defined()) {
        writer.open(fmt::format("if ({})", expressions.render(store.cond).text));
      }
      expressions.store(writer.depth(), store.buffer, index, fmt::format("result.v{}", i));
      if (store.cond.defined()) writer.close();
    }
    Lines four;
    four.open("fn finish4(z: u32, m: u32, n: u32, value: vec4f)");
    for (int i = 0; i < 4; ++i) four.line("finish(z, m, n + {0}u, value[{0}]);", i);
    four.close();
    return fmt::format("fn finish(z: u32, m: u32, n: u32, value: f32) {{\n{}}}\n", writer.text()) +
           four.text();
  }

  std::string render_vector_stores(Helpers& helpers) const {
    Writer writer;
    ExpressionRenderer expressions(kernel_, writer, helpers);
    bind(expressions);
    for (const MappedStore& mapped : stores_) expressions.count(mapped.store.index);
    for (int i = 0; i < 4; ++i) {
      writer.line(fmt::format("let r{0} = finished(z, m, n + {0}u, value[{0}]);", i));
    }
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      const std::string index = expressions.render(stores_[i].store.index).text;
      const std::string_view type = memory_type(stores_[i].dtype);
      std::string parts;
      for (int c = 0; c < 4; ++c) {
        if (c > 0) parts += ", ";
        parts += fmt::format("{}(r{}.v{})", type, c, i);
      }
      writer.line(fmt::format("b{}[({}) / 4u] = vec4<{}>({});", stores_[i].store.buffer, index,
                              type, parts));
    }
    return fmt::format("fn finish4(z: u32, m: u32, n: u32, value: vec4f) {{\n{}}}\n",
                       writer.text());
  }

  const Kernel& original_;
  const Problem& problem_;
  Kernel kernel_;  ///< with loops for the digits
  std::vector<Digit> digits_;
  Index place_;
  std::vector<MappedStore> stores_;
  std::vector<std::size_t> stage_ends_;
  bool wide_ = false;
};

}  // namespace

Epilogue plain_epilogue(const Problem& problem, const Result& out, bool wide) {
  Epilogue epilogue;
  if (out.arg >= 0) epilogue.writes.insert(out.arg);
  const std::string name = out.arg < 0 ? "s0" : fmt::format("b{}", out.arg);
  const std::vector<Dim> n_dims = merged(problem.n, out.n);
  std::string base = number(out.offset);
  base = sum(base, affine("z", merged(problem.batch, out.batch)));
  base = sum(base, affine("m", merged(problem.m, out.m)));
  const std::string at = sum(base, affine("n", n_dims));
  Lines text;
  if (!wide) {
    text.line("fn finish(z: u32, m: u32, n: u32, value: f32) {{ {}[{}] = value; }}", name, at);
  }
  text.open("fn finish4(z: u32, m: u32, n: u32, value: vec4f)");
  if (wide) {
    text.line("{}[({}) / 4u] = value;", name, at);
  } else if (!n_dims.empty() && n_dims.back().extent % 4 == 0) {
    text.line("let at = {};", at);
    for (int i = 0; i < 4; ++i) {
      text.line("{}[at + {}] = value[{}];", name, number(i * n_dims.back().stride), i);
    }
  } else {
    for (int i = 0; i < 4; ++i) text.line("finish(z, m, n + {0}u, value[{0}]);", i);
  }
  text.close();
  epilogue.functions = text.text();
  return epilogue;
}

bool is_wide_result(const Problem& problem, const Result& out, std::int64_t elements) {
  const auto whole = [](const Extents& extents, const Extents& strides) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (extents[i] != 1 && strides[i] % 4 != 0) return false;
    }
    return true;
  };
  const std::vector<Dim> dims = merged(problem.n, out.n);
  if (elements % 4 != 0 || out.offset % 4 != 0 || dims.empty() || dims.back().stride != 1 ||
      dims.back().extent % 4 != 0) {
    return false;
  }
  return whole(problem.batch, out.batch) && whole(problem.m, out.m) &&
         std::all_of(dims.begin(), dims.end() - 1, [](const Dim& d) { return d.stride % 4 == 0; });
}

std::optional<Epilogue> map_epilogue(const Kernel& kernel, const Problem& problem, bool vectors,
                                     WideArgs& wide) {
  Mapper mapper(kernel, problem);
  if (!mapper.run()) return std::nullopt;
  return mapper.render(vectors, wide);
}

}  // namespace tensorgrad::wgsl
