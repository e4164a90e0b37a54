#include "codegen/llvm/nest.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/llvm/function_builder.h"

namespace tensorgrad::llvm_ir {

using kernel::Accumulator;
using kernel::Combiner;
using kernel::Kernel;
using kernel::Stage;
using kernel::Store;

namespace {

/// Most terms that one f32 partial sum takes; longer sums add partial sums in double.
constexpr std::int64_t block = 4096;
/// Elements of a tile in column order.
constexpr std::int64_t tile = 256;

/// The first position of i32 arrays and accumulators.
constexpr std::string_view no_position = "0";

}  // namespace

bool NestRenderer::Running::indexed() const {
  return accumulator->combiner == Combiner::argmax || accumulator->combiner == Combiner::argmin;
}

NestRenderer::NestRenderer(const Kernel& kernel)
    : kernel_(kernel), split_(split_loop(kernel)), expressions_(kernel, writer_) {}

std::int64_t NestRenderer::points(const Stage& stage) const {
  std::int64_t result = 1;
  for (const int var : stage.loops) result *= extent(var);
  return result;
}

std::pair<std::string, std::string> NestRenderer::bounds(int var) const {
  if (var == split_) return {"%begin", "%end"};
  return {"0", fmt::format("{}", extent(var))};
}

void NestRenderer::open(int var) {
  auto [begin, end] = bounds(var);
  const std::string name = writer_.open_loop(begin, end, 1, {});
  expressions_.bind_loop(var, {name, writer_.depth(), false});
}

void NestRenderer::close(const std::vector<std::string>& next) {
  writer_.close_loop(next);
  expressions_.scope_closed();
}

int NestRenderer::open_all(const std::vector<int>& loops) {
  int count = 0;
  for (const int var : loops) {
    if (unit(var)) continue;
    open(var);
    ++count;
  }
  return count;
}

void NestRenderer::render(Order order) {
  for (const int var : kernel_.nest.outer) {
    if (extent(var) == 0) return;
  }
  for (std::size_t var = 0; var < kernel_.loops.size(); ++var) {
    if (unit(static_cast<int>(var))) {
      expressions_.bind_loop(static_cast<int>(var), {"0", 0, false});
    }
  }
  if (order == Order::column) {
    run_tiles();
    return;
  }
  if (order == Order::block) {
    run_blocks();
    return;
  }
  for (const SavedValue& item : values_to_save(kernel_)) {
    const Stage& stage = kernel_.nest.stages[static_cast<std::size_t>(item.stage)];
    const auto loop =
        std::find_if(stage.loops.begin(), stage.loops.end(), [&](int var) { return !unit(var); });
    saved_.push_back({item, *loop, writer_.allocate("float", item.elements)});
  }
  const int opened = open_all(kernel_.nest.outer);
  run_stages_by_row();
  for (int i = 0; i < opened; ++i) close();
}

std::string NestRenderer::block_end(const std::string& first, const std::string& end,
                                    std::int64_t size) {
  const int depth = writer_.depth();
  const std::string beyond = writer_.assign(depth, fmt::format("add nsw i64 {}, {}", first, size));
  const std::string over = writer_.assign(depth, fmt::format("icmp slt i64 {}, {}", beyond, end));
  return writer_.assign(depth, fmt::format("select i1 {}, i64 {}, i64 {}", over, beyond, end));
}

void NestRenderer::run_blocks() {
  // A block of rows takes whole cache lines of the access that crosses them.
  constexpr std::int64_t rows = 16;
  constexpr std::int64_t columns = 32;
  const int inner = kernel_.nest.outer.back();
  const int crossing = crossing_loop(kernel_);
  std::vector<int> around;
  for (const int var : kernel_.nest.outer) {
    if (var != inner && var != crossing) around.push_back(var);
  }
  const int opened = open_all(around);
  const auto [row_begin, row_end] = bounds(crossing);
  const auto [column_begin, column_end] = bounds(inner);
  const std::string first_row = writer_.open_loop(row_begin, row_end, rows, {});
  const std::string last_row = block_end(first_row, row_end, rows);
  const std::string first_column = writer_.open_loop(column_begin, column_end, columns, {});
  const std::string last_column = block_end(first_column, column_end, columns);
  const std::string row = writer_.open_loop(first_row, last_row, 1, {});
  expressions_.bind_loop(crossing, {row, writer_.depth(), false});
  const std::string column = writer_.open_loop(first_column, last_column, 1, {});
  expressions_.bind_loop(inner, {column, writer_.depth(), false});
  run_stages_by_row();
  for (int i = 0; i < opened + 4; ++i) close();
}

void NestRenderer::run_stages_by_row() {
  for (std::size_t i = 0; i < kernel_.nest.stages.size(); ++i) {
    const Stage& stage = kernel_.nest.stages[i];
    if (stage.accumulators.empty()) {
      store_stage(static_cast<int>(i));
    } else if (stage.stores.empty()) {
      reduce_by_row(static_cast<int>(i));
    } else {
      scan_by_row(static_cast<int>(i));
    }
  }
}

void NestRenderer::store_stage(int index) {
  const Stage& stage = kernel_.nest.stages[static_cast<std::size_t>(index)];
  if (points(stage) == 0) return;
  const int opened = open_all(stage.loops);
  recall(index);
  do_stores(stage);
  save(index);
  for (int i = 0; i < opened; ++i) close();
  expressions_.memory_changed();
}

void NestRenderer::recall(int stage) {
  const auto& loops = kernel_.nest.stages[static_cast<std::size_t>(stage)].loops;
  for (const Saved& saved : saved_) {
    if (saved.item.stage >= stage) continue;
    if (std::find(loops.begin(), loops.end(), saved.loop) == loops.end()) continue;
    const int depth = writer_.depth();
    expressions_.bind_value(saved.item.value,
                            {expressions_.load(depth, DType::f32, place_of(saved)), depth, false});
  }
}

std::string NestRenderer::place_of(const Saved& saved) {
  return writer_.assign(writer_.depth(),
                        fmt::format("getelementptr inbounds float, ptr {}, i64 {}", saved.array,
                                    expressions_.loop(saved.loop).name));
}

void NestRenderer::save(int stage) {
  for (const Saved& saved : saved_) {
    if (saved.item.stage != stage) continue;
    const Rendered value = expressions_.render(saved.item.value);
    expressions_.store(writer_.depth(), DType::f32, value.name, place_of(saved));
  }
}

void NestRenderer::do_stores(const Stage& stage) {
  const int depth = writer_.depth();
  // All values are known before the first store, so a stage reads what was there before it.
  struct Ready {
    Rendered value, place, condition;
  };
  std::vector<Ready> ready;
  for (const Store& store : stage.stores) {
    Ready& item = ready.emplace_back();
    item.value = expressions_.render(store.value);
    item.place = expressions_.address(store.buffer, store.index);
    if (store.cond.defined()) item.condition = expressions_.render(store.cond);
  }
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const Store& store = stage.stores[i];
    const DType dtype = kernel_.args[static_cast<std::size_t>(store.buffer)].dtype;
    const auto write = [&] {
      std::string value = ready[i].value.name;
      if (store.accumulate) {
        const std::string old = expressions_.load(depth, dtype, ready[i].place.name);
        const std::string_view instruction = dtype == DType::f32 ? "fadd contract" : "add";
        value = dtype == DType::bool_
                    ? writer_.assign(depth, fmt::format("or i1 {}, {}", old, value))
                    : writer_.assign(depth, fmt::format("{} {} {}, {}", instruction,
                                                        ssa_type(dtype), old, value));
      }
      expressions_.store(depth, dtype, value, ready[i].place.name);
    };
    if (store.cond.defined()) {
      writer_.when(depth, ready[i].condition.name, write);
    } else {
      write();
    }
  }
}

// Reductions, row order: accumulators are carried around the loops as SSA values.

std::vector<std::string> NestRenderer::values(const std::vector<Running>& running) const {
  std::vector<std::string> result;
  for (const Running& item : running) {
    result.push_back(item.value);
    if (item.indexed()) result.push_back(item.position);
  }
  return result;
}

std::vector<Carried> NestRenderer::carry(const std::vector<Running>& running,
                                         bool innermost) const {
  std::vector<Carried> result;
  for (const Running& item : running) {
    const bool wide = item.wide && !innermost;
    result.push_back(
        {std::string(wide ? "double" : ssa_type(item.accumulator->dtype)), item.value, {}});
    if (item.indexed()) result.push_back({"i32", item.position, {}});
  }
  return result;
}

void NestRenderer::uncarry(std::vector<Running>& running,
                           const std::vector<std::string>& names) const {
  std::size_t next = 0;
  for (Running& item : running) {
    item.value = names[next++];
    if (item.indexed()) item.position = names[next++];
  }
}

namespace {
std::vector<std::string> names_of(const std::vector<Carried>& carried) {
  std::vector<std::string> names;
  for (const Carried& value : carried) names.push_back(value.name);
  return names;
}
}  // namespace

void NestRenderer::accumulate(Running& running, bool widened) {
  const Accumulator& accumulator = *running.accumulator;
  const DType dtype = accumulator.dtype;
  const std::string value = expressions_.render(accumulator.value).name;
  const int depth = writer_.depth();
  if (widened) {
    const std::string term = writer_.assign(depth, fmt::format("fpext float {} to double", value));
    running.value = writer_.assign(
        depth, fmt::format("fadd reassoc contract double {}, {}", running.value, term));
    return;
  }
  if (!running.indexed()) {
    running.value = expressions_.combine(depth, accumulator.combiner, dtype, running.value, value);
    return;
  }
  const bool is_max = accumulator.combiner == Combiner::argmax;
  const auto assign = [&](std::string_view text) { return writer_.assign(depth, text); };
  std::string better;
  if (dtype == DType::f32) {
    // True for NaN too, but for a second one.
    const std::string beyond =
        assign(fmt::format("fcmp {} float {}, {}", is_max ? "ugt" : "ult", value, running.value));
    const std::string known = assign(fmt::format("fcmp ord float {0}, {0}", running.value));
    better = assign(fmt::format("and i1 {}, {}", beyond, known));
  } else {
    const std::string_view sign = dtype == DType::i32 ? "s" : "u";
    better = assign(fmt::format("icmp {}{} {} {}, {}", sign, is_max ? "gt" : "lt", ssa_type(dtype),
                                value, running.value));
  }
  const kernel::Index position = accumulator.position;
  const Rendered place = expressions_.render(position);
  const std::string narrow = assign(fmt::format("trunc i64 {} to i32", place.name));
  running.value = assign(fmt::format("select i1 {}, {} {}, {} {}", better, ssa_type(dtype), value,
                                     ssa_type(dtype), running.value));
  running.position =
      assign(fmt::format("select i1 {}, i32 {}, i32 {}", better, narrow, running.position));
}

void NestRenderer::reduce_innermost(int stage, int var, const std::string& begin,
                                    const std::string& end, std::vector<Running>& running) {
  std::vector<Running> inner = running;
  for (Running& item : inner) {
    if (item.wide) item.value = literal(DType::f32, 0);
  }
  const std::string name = writer_.open_loop(begin, end, 1, carry(inner, true));
  expressions_.bind_loop(var, {name, writer_.depth(), false});
  uncarry(inner, names_of(writer_.carried()));
  recall(stage);
  for (Running& item : inner) accumulate(item, false);
  save(stage);
  close(values(inner));
  const int depth = writer_.depth();
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (running[i].wide) {
      const std::string partial =
          writer_.assign(depth, fmt::format("fpext float {} to double", inner[i].value));
      running[i].value = writer_.assign(
          depth, fmt::format("fadd contract double {}, {}", running[i].value, partial));
    } else {
      running[i].value = inner[i].value;
      running[i].position = inner[i].position;
    }
  }
}

void NestRenderer::reduce_loops(int stage, const std::vector<int>& loops, std::size_t level,
                                std::vector<Running>& running) {
  const int var = loops[level];
  const bool last = level + 1 == loops.size();
  if (last && extent(var) <= block) {
    reduce_innermost(stage, var, "0", fmt::format("{}", extent(var)), running);
    return;
  }
  const std::string end = fmt::format("{}", extent(var));
  const std::string name = writer_.open_loop("0", end, last ? block : 1, carry(running, false));
  uncarry(running, names_of(writer_.carried()));
  if (last) {
    reduce_innermost(stage, var, name, block_end(name, end, block), running);
  } else {
    expressions_.bind_loop(var, {name, writer_.depth(), false});
    reduce_loops(stage, loops, level + 1, running);
  }
  close(values(running));
}

std::vector<NestRenderer::Running> NestRenderer::start(const Stage& stage, bool always_wide) const {
  std::vector<Running> running;
  for (const Accumulator& accumulator : stage.accumulators) {
    const bool wide = accumulator.combiner == Combiner::sum && accumulator.dtype == DType::f32 &&
                      (always_wide || points(stage) > block);
    const double neutral = kernel::neutral(accumulator.combiner, accumulator.dtype);
    running.push_back(
        {.accumulator = &accumulator,
         .wide = wide,
         .value = wide ? float_literal(Type::f64, neutral) : literal(accumulator.dtype, neutral),
         .position = std::string(no_position),
         .values = {},
         .positions = {}});
  }
  return running;
}

void NestRenderer::bind_running(int index, const std::vector<Running>& running) {
  const int depth = writer_.depth();
  for (std::size_t slot = 0; slot < running.size(); ++slot) {
    const Running& item = running[slot];
    std::string name = item.indexed() ? item.position : item.value;
    if (item.wide) name = writer_.assign(depth, fmt::format("fptrunc double {} to float", name));
    const Rendered result{name, depth, false};
    expressions_.bind_accumulator(index, static_cast<int>(slot), [result] { return result; });
  }
}

// Scans, row order: one running value after the other, so sums of f32 are carried in double, which
// costs no more.

void NestRenderer::scan_loops(int index, const std::vector<int>& loops, std::size_t level,
                              std::vector<Running>& running) {
  if (level == loops.size()) {
    for (Running& item : running) accumulate(item, item.wide);
    bind_running(index, running);
    do_stores(kernel_.nest.stages[static_cast<std::size_t>(index)]);
    return;
  }
  const int var = loops[level];
  const std::string name =
      writer_.open_loop("0", fmt::format("{}", extent(var)), 1, carry(running, false));
  uncarry(running, names_of(writer_.carried()));
  expressions_.bind_loop(var, {name, writer_.depth(), false});
  scan_loops(index, loops, level + 1, running);
  close(values(running));
}

void NestRenderer::scan_by_row(int index) {
  const Stage& stage = kernel_.nest.stages[static_cast<std::size_t>(index)];
  std::vector<Running> running = start(stage, true);
  if (points(stage) > 0) {
    std::vector<int> loops;
    for (const int var : stage.loops) {
      if (!unit(var)) loops.push_back(var);
    }
    scan_loops(index, loops, 0, running);
  }
  bind_running(index, running);
  expressions_.memory_changed();
}

void NestRenderer::reduce_by_row(int index) {
  const Stage& stage = kernel_.nest.stages[static_cast<std::size_t>(index)];
  const std::int64_t count = points(stage);
  std::vector<Running> running = start(stage, false);
  std::vector<int> loops;
  for (const int var : stage.loops) {
    if (!unit(var)) loops.push_back(var);
  }
  if (loops.empty()) {
    for (Running& item : running) accumulate(item, false);
  } else if (count > 0) {
    reduce_loops(index, loops, 0, running);
  }
  bind_running(index, running);
}

// Column order: accumulators are arrays with an element for each column of the tile.

void NestRenderer::open_tile(const std::string& first, const std::string& size) {
  tile_offset_ = writer_.open_loop("0", size, 1, {});
  const int depth = writer_.depth();
  const std::string column =
      first == "0"
          ? tile_offset_
          : writer_.assign(depth, fmt::format("add nuw nsw i64 {}, {}", first, tile_offset_));
  expressions_.bind_loop(kernel_.nest.outer.back(), {column, depth, false});
}

void NestRenderer::run_tiles() {
  std::vector<int> around = kernel_.nest.outer;
  const int var = around.back();
  around.pop_back();
  const int opened = open_all(around);
  const auto [begin, end] = bounds(var);
  const bool one_tile = begin == "0" && extent(var) <= tile;
  if (one_tile) {
    run_stages_by_column("0", end);
  } else {
    const std::string first = writer_.open_loop(begin, end, tile, {});
    const int depth = writer_.depth();
    const std::string left =
        writer_.assign(depth, fmt::format("sub nuw nsw i64 {}, {}", end, first));
    const std::string partial =
        writer_.assign(depth, fmt::format("icmp slt i64 {}, {}", left, tile));
    const std::string size =
        writer_.assign(depth, fmt::format("select i1 {}, i64 {}, i64 {}", partial, left, tile));
    run_stages_by_column(first, size);
    close();
  }
  for (int i = 0; i < opened; ++i) close();
}

void NestRenderer::run_stages_by_column(const std::string& first, const std::string& size) {
  for (std::size_t i = 0; i < kernel_.nest.stages.size(); ++i) {
    const Stage& stage = kernel_.nest.stages[i];
    if (!stage.accumulators.empty()) {
      reduce_by_column(static_cast<int>(i), first, size);
      continue;
    }
    if (points(stage) == 0) continue;
    const int opened = open_all(stage.loops);
    open_tile(first, size);
    do_stores(stage);
    close();
    for (int level = 0; level < opened; ++level) close();
    expressions_.memory_changed();
  }
}

void NestRenderer::reduce_by_column(int index, const std::string& first, const std::string& size) {
  const Stage& stage = kernel_.nest.stages[static_cast<std::size_t>(index)];
  const bool is_scan = !stage.stores.empty();
  std::vector<Running> running;
  const auto element = [&](std::string_view type, const std::string& array) {
    return writer_.assign(writer_.depth(), fmt::format("getelementptr inbounds {}, ptr {}, i64 {}",
                                                       type, array, tile_offset_));
  };
  const auto array = [&](std::string_view type) { return writer_.allocate(type, tile); };
  for (const Accumulator& accumulator : stage.accumulators) {
    Running& item = running.emplace_back();
    item.accumulator = &accumulator;
    item.wide = accumulator.combiner == Combiner::sum && accumulator.dtype == DType::f32 &&
                (is_scan || points(stage) > block / 4);
    item.values = array(item.wide ? "double" : memory_type(accumulator.dtype));
    if (item.indexed()) item.positions = array("i32");
  }
  const auto save = [&](const Running& item) {
    const int depth = writer_.depth();
    const DType dtype = item.accumulator->dtype;
    if (item.wide) {
      writer_.line(depth, fmt::format("store double {}, ptr {}", item.value,
                                      element("double", item.values)));
    } else {
      expressions_.store(depth, dtype, item.value, element(memory_type(dtype), item.values));
    }
    if (item.indexed()) {
      expressions_.store(depth, DType::i32, item.position, element("i32", item.positions));
    }
  };
  const auto restore = [&](Running& item) {
    const int depth = writer_.depth();
    const DType dtype = item.accumulator->dtype;
    item.value =
        item.wide ? writer_.assign(
                        depth, fmt::format("load double, ptr {}", element("double", item.values)))
                  : expressions_.load(depth, dtype, element(memory_type(dtype), item.values));
    if (item.indexed()) {
      item.position = expressions_.load(depth, DType::i32, element("i32", item.positions));
    }
  };

  open_tile(first, size);
  for (Running& item : running) {
    const Accumulator& accumulator = *item.accumulator;
    const double neutral = kernel::neutral(accumulator.combiner, accumulator.dtype);
    item.value =
        item.wide ? float_literal(Type::f64, neutral) : literal(accumulator.dtype, neutral);
    item.position = no_position;
    save(item);
  }
  close();
  if (points(stage) > 0) {
    const int opened = open_all(stage.loops);
    open_tile(first, size);
    for (Running& item : running) restore(item);
    for (Running& item : running) accumulate(item, item.wide);
    for (const Running& item : running) save(item);
    if (is_scan) {
      bind_running(index, running);
      do_stores(stage);
    }
    close();
    for (int level = 0; level < opened; ++level) close();
    if (is_scan) expressions_.memory_changed();
  }
  for (std::size_t slot = 0; slot < running.size(); ++slot) {
    const Running& item = running[slot];
    expressions_.bind_accumulator(index, static_cast<int>(slot), [this, item, element] {
      const int depth = writer_.depth();
      Rendered result{{}, depth, false};
      if (item.indexed()) {
        result.name = expressions_.load(depth, DType::i32, element("i32", item.positions));
      } else if (item.wide) {
        const std::string sum = writer_.assign(
            depth, fmt::format("load double, ptr {}", element("double", item.values)));
        result.name = writer_.assign(depth, fmt::format("fptrunc double {} to float", sum));
      } else {
        const DType dtype = item.accumulator->dtype;
        result.name = expressions_.load(depth, dtype, element(memory_type(dtype), item.values));
      }
      return result;
    });
  }
}

}  // namespace tensorgrad::llvm_ir
