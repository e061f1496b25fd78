#include "core/emulator/memory.h"

#include <algorithm>
#include <cstring>

namespace quern::emulated {

namespace {

constexpr int kPoison = 0xcd;

std::string bytes(size_t count) { return std::to_string(count) + (count == 1 ? " byte" : " bytes"); }

}  // namespace

void Memory::add(Region::Kind kind, std::string name, uintptr_t begin, size_t size) {
  auto region = std::make_unique<Region>(Region{kind, std::move(name), begin, size, {}});
  if (region->is_writable()) region->cells.resize(size);
  auto place =
      std::find_if(regions_.begin(), regions_.end(), [&](auto& other) { return other->begin >= begin; });
  regions_.insert(place, std::move(region));
}

void Memory::remove_shared() {
  last_ = nullptr;
  std::erase_if(regions_, [](auto& region) { return region->is_shared(); });
}

void Memory::poison_shared() {
  ordinary_ = 0;
  fences_.fill(0);
  for (auto& region : regions_) {
    if (!region->is_shared()) continue;
    std::fill(region->cells.begin(), region->cells.end(), Cell{});
    memset(reinterpret_cast<void*>(region->begin), kPoison, region->size);
  }
}

Region* Memory::find(uintptr_t address) {
  if (last_ && last_->holds(address)) return last_;
  auto after = std::upper_bound(regions_.begin(), regions_.end(), address,
                                [](uintptr_t a, const auto& region) { return a < region->begin; });
  if (after == regions_.begin() || !(*std::prev(after))->holds(address)) return nullptr;
  return last_ = std::prev(after)->get();
}

Region* Memory::find_for(const char* action, uintptr_t address, size_t size) {
  Region* region = find(address);
  if (region && size <= region->begin + region->size - address) return region;
  violate("out-of-bounds " + std::string(action) + " of " + bytes(size) + " at " + locate(address));
  return nullptr;
}

bool Memory::read(uintptr_t address, size_t size, int thread) {
  Region* region = find_for("read", address, size);
  if (!region || !judge_caller("read", *region, address, thread)) return false;
  if (!region->is_writable()) return true;
  Cell* cells = &region->cells[address - region->begin];
  Cell last;  // the byte before, before this read; mostly all bytes of an access are alike
  for (size_t i = 0; i < size; ++i) {
    if (i > 0 && cells[i].is_like(last)) {
      cells[i].read = cells[i - 1].read;
      continue;
    }
    last = cells[i];
    const Stamp& write = cells[i].write;
    if (write.pending)
      return violate("read of " + locate(address + i) + ", into which an asynchronous copy of " +
                     clock_.describe(write) + " is still under way");
    if (write.epoch == 0) return violate("uninitialised read of " + locate(address + i));
    if (!clock_.is_before(write, thread))
      return violate("race: read of " + locate(address + i) + ", which " + clock_.describe(write) +
                     " wrote with no synchronisation between");
    clock_.add_reader(cells[i].read, thread);
  }
  return true;
}

bool Memory::read_shared(uintptr_t address, size_t size, int thread) {
  Region* region = find_for("read", address, size);
  if (!region) return false;
  if (!region->is_shared()) return violate("read of " + locate(address) + ", which is not shared memory");
  return read(address, size, thread);
}

bool Memory::write_shared(uintptr_t address, size_t size, int thread) {
  Region* region = find_for("write", address, size);
  if (!region) return false;
  if (!region->is_shared()) return violate("write of " + locate(address) + ", which is not shared memory");
  return write(address, size, thread);
}

bool Memory::read_global(uintptr_t address, size_t size, int thread) {
  Region* region = find_for("read", address, size);
  if (!region) return false;
  if (region->is_shared()) return violate("read of " + locate(address) + ", which is not global memory");
  return read(address, size, thread);
}

// Buffers of the caller's, of which the workspace is one.
bool Memory::judge_caller(const char* action, const Region& region, uintptr_t address, int thread) {
  if (!region.is_the_callers() || !clock_.awaits_caller(thread)) return true;
  return violate(std::string(action) + " of " + locate(address) + " by " + clock_.describe_thread(thread) +
                 " with no grid_wait before: what the caller enqueued before may still use it");
}

bool Memory::judge_write(Region& region, uintptr_t address, size_t size, int thread) {
  if (!judge_caller("write", region, address, thread)) return false;
  if (!region.is_writable()) return violate("write of " + bytes(size) + " to read-only " + locate(address));
  const Cell* cells = &region.cells[address - region.begin];
  for (size_t i = 0; i < size; ++i) {
    if (i > 0 && cells[i].is_like(cells[i - 1])) continue;
    const Stamp &write = cells[i].write, &read = cells[i].read;
    if (cells[i].held > 0)
      return violate("write to " + locate(address + i) + ", which a " + holders_[cells[i].holder] +
                     " still reads: nobody has waited for it");
    if (write.pending)
      return violate("write to " + locate(address + i) + ", into which an asynchronous copy of " +
                     clock_.describe(write) + " is still under way");
    if (write.epoch != 0 && !clock_.is_before(write, thread))
      return violate("race: write to " + locate(address + i) + ", which " + clock_.describe(write) +
                     " also wrote, with no synchronisation between");
    if (read.epoch != 0 && !clock_.is_before(read, thread))
      return violate("race: write to " + locate(address + i) + ", which " + clock_.describe(read) +
                     " read, with no synchronisation between");
  }
  return true;
}

bool Memory::write(uintptr_t address, size_t size, int thread) {
  Region* region = find_for("write", address, size);
  if (!region || !judge_write(*region, address, size, thread)) return false;
  std::fill_n(&region->cells[address - region->begin], size, Cell{clock_.now(thread), {}, ++ordinary_});
  return true;
}

bool Memory::judge_fences(const Region& region, uintptr_t address, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    const Cell& cell = region.cells[address - region.begin + i];
    if (cell.ordinary != 0 && fences_[cell.write.who] < cell.ordinary)
      return violate("asynchronous access to " + locate(address + i) + ", which " +
                     clock_.describe(cell.write) + " wrote with no fence_proxy_async behind it");
  }
  return true;
}

bool Memory::begin_copy(uintptr_t to, size_t size, int thread, bool proxy) {
  Region* region = find_for("write", to, size);
  if (!region || !judge_write(*region, to, size, thread)) return false;
  if (!region->is_shared())
    return violate("asynchronous copy to " + locate(to) + ", which is not shared memory");
  if (proxy && !judge_fences(*region, to, size)) return false;
  Cell cell{clock_.now(thread), {}, proxy ? 0 : ++ordinary_};
  cell.write.pending = 1;
  std::fill_n(&region->cells[to - region->begin], size, cell);
  return true;
}

void Memory::end_copy(uintptr_t to, size_t size, Stamp stamp, bool proxy) {
  Region* region = find(to);
  std::fill_n(&region->cells[to - region->begin], size, Cell{stamp, {}, proxy ? 0 : ++ordinary_});
}

void Memory::hold(uintptr_t address, size_t size, const char* who) {
  const auto at = std::find(holders_.begin(), holders_.end(), who);
  const auto number = static_cast<uint32_t>(at - holders_.begin());
  if (at == holders_.end()) holders_.push_back(who);
  check(number < 1u << 8, "few instructions hold memory");
  Cell* const cells = &find(address)->cells[address - find(address)->begin];
  for (size_t i = 0; i < size; ++i) {
    ++cells[i].held;
    cells[i].holder = number;
  }
}

void Memory::release(uintptr_t address, size_t size) {
  Cell* const cells = &find(address)->cells[address - find(address)->begin];
  for (size_t i = 0; i < size; ++i) --cells[i].held;
}

bool Memory::read_constant(uintptr_t address, size_t size) {
  const Region* region = find_for("read", address, size);
  if (region && region->is_the_callers() && clock_.overlaps_caller())
    return violate("read of " + locate(address) +
                   " as a constant, which what the caller enqueued before may write");
  if (!region || !region->is_writable() || !clock_.overlaps()) return region;
  for (size_t i = 0; i < size; ++i)
    if (const Stamp& write = region->cells[address - region->begin + i].write;
        write.epoch != 0 && !clock_.has_settled(write))
      return violate("read of " + locate(address + i) + " as a constant, which " + clock_.describe(write) +
                     " wrote when this launch may have begun");
  return true;
}

bool Memory::read_beside(uintptr_t address, size_t size, int thread, bool proxy) {
  return read_shared(address, size, thread) && (!proxy || judge_fences(*find(address), address, size));
}

bool Memory::may_end(uintptr_t shared, int rank, int thread) {
  const Region* region = find(shared);
  if (!region) return true;  // the block has none
  for (size_t i = 0; i < region->size; ++i)
    for (const Stamp& access : {region->cells[i].read, region->cells[i].write})
      if (access.epoch != 0 && clock_.is_foreign(access, rank) && !clock_.is_before(access, thread))
        return violate("the block has ended, but " + clock_.describe(access) + " accessed its " +
                       locate(shared + i) + " with no cluster_wait between");
  return true;
}

size_t Memory::find_unwritten(uintptr_t address, size_t size) const {
  auto after = std::upper_bound(regions_.begin(), regions_.end(), address,
                                [](uintptr_t a, const auto& region) { return a < region->begin; });
  if (size == 0) return 0;
  check(after != regions_.begin(), "find_unwritten looks at a region");
  const Region& region = **std::prev(after);
  auto begin = region.cells.begin() + (address - region.begin);
  return std::find_if(begin, begin + size, [](const Cell& cell) { return cell.write.epoch == 0; }) - begin;
}

std::string Memory::locate(uintptr_t address) const {
  const Region* nearest = nullptr;
  intptr_t nearest_distance = 0;
  for (const auto& region : regions_) {
    if (region->kind == Region::Kind::constants) continue;
    intptr_t distance = address < region->begin
                            ? static_cast<intptr_t>(region->begin - address)
                            : static_cast<intptr_t>(address - region->begin - region->size + 1);
    if (region->holds(address)) distance = 0;
    if (!nearest || distance < nearest_distance) {
      nearest = region.get();
      nearest_distance = distance;
    }
  }
  if (!nearest || nearest_distance > 1 << 20) return "an address in no buffer";
  return nearest->name + " (" + bytes(nearest->size) + ") at offset " +
         std::to_string(static_cast<intptr_t>(address - nearest->begin));
}

bool Memory::violate(std::string text) {
  violation_ = std::move(text);
  return false;
}

}  // namespace quern::emulated
