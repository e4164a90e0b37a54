#include "train/values.h"

#include <algorithm>

namespace tensorgrad {

std::shared_ptr<const HostData> KnownValues::find(const Node& node) {
  if (const auto* d = std::get_if<DataAttr>(&node.attrs)) return d->data;
  const Lock lock(mutex_);
  const auto it = entries_.find(&node);
  if (it == entries_.end()) return nullptr;
  // The table's weak pointer keeps the address from being used again, so this is the same node.
  return it->second.value;
}

void KnownValues::remember(const Tensor& tensor, std::shared_ptr<const HostData> value) {
  if (std::holds_alternative<DataAttr>(tensor.node().attrs)) return;
  const Lock lock(mutex_);
  const std::size_t size = value->bytes.size();
  const auto [it, inserted] =
      entries_.try_emplace(&tensor.node(), Entry{tensor.handle(), std::move(value)});
  if (!inserted) return;
  bytes_ += size;
  if (entries_.size() > sweep_at_count_ || bytes_ > sweep_at_bytes_) sweep();
}

std::size_t KnownValues::size() const {
  const Lock lock(mutex_);
  return entries_.size();
}

void KnownValues::sweep() {
  std::erase_if(entries_, [&](const auto& entry) {
    if (!entry.second.node.expired()) return false;
    bytes_ -= entry.second.value->bytes.size();
    return true;
  });
  sweep_at_count_ = std::max(2 * entries_.size(), std::size_t{64});
  sweep_at_bytes_ = std::max(2 * bytes_, std::size_t{1} << 22);
}

KnownValues& known_values() {
  static KnownValues values;
  return values;
}

}  // namespace tensorgrad
