#include "runtime/cpu/jit.h"

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "runtime/disk_cache.h"
#include "tensorgrad/error.h"

namespace tensorgrad::cpu {
namespace {

[[noreturn]] void fail(const std::string& kernel, const std::string& reason) {
  throw DeviceError(
      fmt::format("The CPU backend cannot compile kernel \"{}\": {}", kernel, reason));
}

template <class T>
T expect(llvm::Expected<T> value, const std::string& kernel) {
  if (!value) fail(kernel, llvm::toString(value.takeError()));
  return std::move(*value);
}

/// What of LLVM's -O3 matters to loops over arrays that were written with care: there is nothing to
/// inline but the math helpers, and loops are unrolled by the vectoriser alone, short ones fully.
/// It makes the same code as -O3 in half of the time.
std::string pass_pipeline(bool optimises) {
  if (!optimises) return "always-inline";
  // Run by name, the pass would end the process where one iteration leaves something to combine.
  constexpr std::string_view combine = "instcombine<no-verify-fixpoint>";
  return fmt::format(
      "always-inline,"
      "function(sroa,early-cse<memssa>,simplifycfg,{0},"
      "loop-mssa(licm,simple-loop-unswitch<nontrivial>),simplifycfg,{0},"
      "loop(loop-idiom,indvars,loop-deletion,loop-unroll-full),"
      "sroa,early-cse<memssa>,{0},simplifycfg,"
      "loop-vectorize,{0},simplifycfg,loop-mssa(licm),slp-vectorizer,"
      "{0},loop-mssa(licm),early-cse<memssa>,simplifycfg)",
      combine);
}

/// Everything that compiling one module needs; LLVM contexts are not shared between threads.
class Compiler {
 public:
  Compiler(const llvm::orc::JITTargetMachineBuilder& target, int vector_bits, const Source& source,
           const std::string& passes)
      : source_(source), vector_bits_(vector_bits), passes_(passes) {
    llvm::orc::JITTargetMachineBuilder builder = target;
    machine_ = expect(builder.createTargetMachine(), source.name);
    llvm::SMDiagnostic problem;
    module_ = llvm::parseAssemblyString(source.text, problem, context_);
    if (!module_) {
      fail(source.name,
           fmt::format("line {}: {}", problem.getLineNo(), problem.getMessage().str()));
    }
    module_->setDataLayout(machine_->createDataLayout());
#if LLVM_VERSION_MAJOR >= 21
    module_->setTargetTriple(machine_->getTargetTriple());
#else
    module_->setTargetTriple(machine_->getTargetTriple().str());
#endif
    const std::string width = std::to_string(vector_bits_);
    for (llvm::Function& function : *module_) {
      if (function.isDeclaration()) continue;
      function.addFnAttr("target-cpu", machine_->getTargetCPU());
      function.addFnAttr("target-features", machine_->getTargetFeatureString());
      function.addFnAttr("prefer-vector-width", width);
    }
  }

  void optimise() {
    llvm::PipelineTuningOptions options;
    options.LoopVectorization = true;
    options.SLPVectorization = true;
    options.LoopInterleaving = true;
    options.LoopUnrolling = true;
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager components;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder passes(machine_.get(), options);
    passes.registerModuleAnalyses(modules);
    passes.registerCGSCCAnalyses(components);
    passes.registerFunctionAnalyses(functions);
    passes.registerLoopAnalyses(loops);
    passes.crossRegisterProxies(loops, functions, components, modules);
    llvm::ModulePassManager pipeline;
    if (auto error = passes.parsePassPipeline(pipeline, passes_)) {
      fail(source_.name, llvm::toString(std::move(error)));
    }
    pipeline.run(*module_, modules);
  }

  std::string text() const {
    std::string result;
    llvm::raw_string_ostream stream(result);
    module_->print(stream, nullptr);
    stream.flush();
    return result;
  }

  llvm::SmallVector<char, 0> emit(llvm::CodeGenFileType kind) {
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager passes;
    if (machine_->addPassesToEmitFile(passes, stream, nullptr, kind)) {
      fail(source_.name, "the target does not write code of this kind");
    }
    passes.run(*module_);
    return bytes;
  }

 private:
  const Source& source_;
  int vector_bits_;
  const std::string& passes_;
  llvm::LLVMContext context_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::unique_ptr<llvm::Module> module_;
};

/// LLVM's JIT, outlived by no code.
struct Linker {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::mutex mutex;
  std::uint64_t next = 0;
};

class LinkedCode final : public Code {
 public:
  LinkedCode(std::shared_ptr<Linker> linker, llvm::orc::JITDylib& library, Entry address)
      : linker_(std::move(linker)), library_(&library), entry_(address) {}
  LinkedCode(const LinkedCode&) = delete;
  LinkedCode& operator=(const LinkedCode&) = delete;
  ~LinkedCode() override {
    const std::lock_guard lock(linker_->mutex);
    // Memory that cannot be released stays until the process ends; nothing else depends on it.
    llvm::consumeError(linker_->jit->getExecutionSession().removeJITDylib(*library_));
  }
  Entry entry() const override { return entry_; }

 private:
  std::shared_ptr<Linker> linker_;
  llvm::orc::JITDylib* library_;
  Entry entry_;
};

llvm::orc::JITTargetMachineBuilder detect_target(bool optimises) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  auto target = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!target) {
    throw DeviceError("The CPU backend cannot tell what processor this is: " +
                      llvm::toString(target.takeError()));
  }
  target->setCodeGenOptLevel(optimises ? llvm::CodeGenOptLevel::Aggressive
                                       : llvm::CodeGenOptLevel::None);
  return std::move(*target);
}

int preferred_vector_bits() {
  const auto features = llvm::sys::getHostCPUFeatures();
  const auto has = [&](const char* feature) {
    const auto found = features.find(feature);
    return found != features.end() && found->second;
  };
  return has("avx512f") ? 512 : has("avx") ? 256 : 128;
}

}  // namespace

class Jit::State {
 public:
  State(const std::filesystem::path& folder, bool optimises)
      : target(detect_target(optimises)),
        passes(pass_pipeline(optimises)),
        linker(std::make_shared<Linker>()),
        disk(folder) {
    processor = {llvm::sys::getHostCPUName().str(), preferred_vector_bits(), LLVM_VERSION_STRING};
    compiler = fmt::format("cpu LLVM {} {} {} {} {} {}\n", LLVM_VERSION_STRING,
                           target.getTargetTriple().str(), target.getCPU(),
                           target.getFeatures().getString(), processor.vector_bits, passes);
    auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(target).create();
    if (!jit) {
      throw DeviceError("The CPU backend cannot start LLVM's JIT: " +
                        llvm::toString(jit.takeError()));
    }
    linker->jit = std::move(*jit);
    // What fails is also returned to the caller, who throws it.
    linker->jit->getExecutionSession().setErrorReporter(
        [](llvm::Error error) { llvm::consumeError(std::move(error)); });
  }

  std::shared_ptr<const Code> make(const Source& source) {
    const std::string key = compiler + source.text;
    if (const auto known = disk.get(key)) {
      const auto* bytes = reinterpret_cast<const char*>(known->data());
      try {
        auto code = link(source, llvm::SmallVector<char, 0>(bytes, bytes + known->size()));
        ++from_disk;
        return code;
      } catch (const DeviceError&) {
        // Not what this JIT writes: compiled anew and replaced below.
      }
    }
    Compiler module(target, processor.vector_bits, source, passes);
    module.optimise();
    llvm::SmallVector<char, 0> object = module.emit(llvm::CodeGenFileType::ObjectFile);
    disk.put(key, std::as_bytes(std::span(object.data(), object.size())));
    ++compiled;
    return link(source, std::move(object));
  }

  std::shared_ptr<const Code> link(const Source& source, llvm::SmallVector<char, 0> bytes) {
    auto object =
        std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes), source.name, false);
    const std::lock_guard lock(linker->mutex);
    auto& session = linker->jit->getExecutionSession();
    auto created = session.createJITDylib(fmt::format("kernel{}", linker->next++));
    if (!created) fail(source.name, llvm::toString(created.takeError()));
    llvm::orc::JITDylib& library = *created;
    try {
      // Block copies and fmod are calls into the C library.
      library.addGenerator(expect(llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
                                      linker->jit->getDataLayout().getGlobalPrefix()),
                                  source.name));
      if (auto error = linker->jit->addObjectFile(library, std::move(object))) {
        fail(source.name, llvm::toString(std::move(error)));
      }
      const auto symbol = expect(
          linker->jit->lookup(library, llvm::StringRef(entry_name.data(), entry_name.size())),
          source.name);
      return std::make_shared<LinkedCode>(linker, library, symbol.toPtr<Entry>());
    } catch (const DeviceError&) {
      llvm::consumeError(session.removeJITDylib(library));
      throw;
    }
  }

  /// Drops code that nobody else holds once much of it has gathered.
  void trim() {
    constexpr std::size_t most = 2048;
    if (cache.size() < most) return;
    std::erase_if(cache, [](const auto& entry) { return entry.second.use_count() == 1; });
  }

  llvm::orc::JITTargetMachineBuilder target;
  std::string passes;
  Processor processor;
  std::shared_ptr<Linker> linker;
  DiskCache disk;
  std::string compiler;  ///< all that an object depends on besides its text
  std::atomic<std::size_t> compiled{0}, from_disk{0}, from_memory{0};
  std::mutex mutex;  // of the cache
  std::unordered_map<std::string, std::shared_ptr<const Code>> cache;
};

Jit::Jit(const std::filesystem::path& cache, bool optimises)
    : state_(std::make_unique<State>(cache, optimises)) {}
Jit::~Jit() = default;

const Processor& Jit::processor() const { return state_->processor; }

JitCounts Jit::counts() const { return {state_->compiled, state_->from_disk, state_->from_memory}; }

std::vector<std::shared_ptr<const Code>> Jit::compile(std::span<const Source> sources,
                                                      int threads) {
  std::vector<std::shared_ptr<const Code>> result(sources.size());
  std::vector<std::size_t> missing;  // the first source of each new text
  std::unordered_map<std::string_view, std::size_t> first;
  {
    const std::lock_guard lock(state_->mutex);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto found = state_->cache.find(sources[i].text);
      if (found != state_->cache.end()) {
        result[i] = found->second;
        ++state_->from_memory;
      } else if (first.emplace(sources[i].text, i).second) {
        missing.push_back(i);
      } else {
        ++state_->from_memory;
      }
    }
  }
  std::atomic<std::size_t> next{0};
  std::exception_ptr problem;
  std::mutex problem_mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < missing.size(); i = next++) {
      try {
        result[missing[i]] = state_->make(sources[missing[i]]);
      } catch (...) {
        const std::lock_guard lock(problem_mutex);
        if (!problem) problem = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const auto wanted =
        std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), missing.size());
    for (std::size_t i = 1; i < wanted; ++i) helpers.emplace_back(work);
    work();
  }
  if (problem) std::rethrow_exception(problem);
  const std::lock_guard lock(state_->mutex);
  state_->trim();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!result[i]) result[i] = result[first.at(sources[i].text)];
    state_->cache.emplace(sources[i].text, result[i]);
  }
  return result;
}

std::string Jit::optimised(const Source& source) const {
  Compiler compiler(state_->target, state_->processor.vector_bits, source, state_->passes);
  compiler.optimise();
  return compiler.text();
}

std::string Jit::assembly(const Source& source) const {
  Compiler compiler(state_->target, state_->processor.vector_bits, source, state_->passes);
  compiler.optimise();
  const auto bytes = compiler.emit(llvm::CodeGenFileType::AssemblyFile);
  return {bytes.begin(), bytes.end()};
}

}  // namespace tensorgrad::cpu
