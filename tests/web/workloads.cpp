// The fixed workloads as a module for pages.
#include "workloads.h"

#include "tensorgrad/web.h"

namespace tensorgrad::web {
void register_models(Models& models) {
  for (const std::string& name : tools::workload_names()) {
    models.add(name, [name](const Options& options) {
      return Model{*tools::compile_workload(name, options.device()).training};
    });
  }
}

}  // namespace tensorgrad::web
