#include "core/kernel/count.h"

#include <algorithm>
#include <set>

#include "core/base/integers.h"
#include "core/kernel/block_values.h"
#include "core/kernel/effects.h"
#include "core/kernel/footprint.h"

namespace quern::ir {

namespace {

constexpr size_t kWarp = 32;
constexpr int64_t kSector = 32, kBanks = 32, kWord = 4;
constexpr int64_t kTripsCounted =
    9;  // of loops whose trips differ: at each end, and between; rings have 8 stages

using Threads = std::vector<bool>;

bool is_empty(const Threads& threads) {
  return std::find(threads.begin(), threads.end(), true) == threads.end();
}

class BlockCounter {
 public:
  BlockCounter(const Kernel& kernel, const LaunchFacts& facts, const BlockAt& block)
      : kernel_(kernel), facts_(facts), values_(block), threads_(static_cast<size_t>(block.threads)) {}

  Counts run() {
    define_all(kernel_.setup);
    define_all(kernel_.body);
    const Threads all(threads_, true);
    for (const Body* body : {&kernel_.setup, &kernel_.body}) this->body(*body, all);
    return std::move(out_);
  }

 private:
  // So that depends() knows what is named in a loop before the loop is gone through.
  void define_all(const Body& body) {
    for (const Stmt& stmt : body) {
      if (const auto* let = stmt.as<Let>()) values_.define(*let->name, let->value);
      if (const Body* inner = body_of(stmt)) define_all(*inner);
    }
  }

  // The threads that go on behind it.
  Threads body(const Body& statements, Threads threads) {
    for (const Stmt& stmt : statements) {
      if (is_empty(threads)) break;
      threads = statement(stmt, std::move(threads));
    }
    return threads;
  }

  Threads statement(const Stmt& stmt, Threads threads) {
    if (const auto* let = stmt.as<Let>()) {
      expression(let->value, threads);
      // Again: a name may be given to the next iteration and to this one.
      values_.define(*let->name, let->value);
    } else if (const auto* assign = stmt.as<Assign>()) {
      expression(assign->value, threads);
      store(*assign, threads);
    } else if (const auto* loop = stmt.as<For>()) {
      for_loop(*loop, threads);
      without(threads, returned_);
    } else if (const auto* branch = stmt.as<If>()) {
      expression(branch->condition, threads);
      const Threads there = where(branch->condition, threads), back = body(branch->then, there);
      for (size_t t = 0; t < threads_; ++t) threads[t] = threads[t] && (!there[t] || back[t]);
    } else if (const auto* instruction = stmt.as<Instruction>()) {
      this->instruction(*instruction, threads);
    } else if (const auto* role = stmt.as<WarpRole>()) {
      Threads own(threads_);
      for (size_t t = 0; t < threads_; ++t) {
        const auto warp = static_cast<int>(t / kWarp);
        own[t] = threads[t] && warp >= role->first_warp && warp < role->first_warp + role->warps;
      }
      body(role->body, own);
      without(threads, own);
    } else if (const auto* scope = stmt.as<Scope>()) {
      return body(scope->body, std::move(threads));
    } else if (stmt.as<Return>() || stmt.as<Continue>()) {
      if (stmt.as<Return>()) merge(returned_, threads);
      return Threads(threads_);
    }
    return threads;
  }

  static void without(Threads& threads, const Threads& gone) {
    for (size_t t = 0; t < gone.size(); ++t) threads[t] = threads[t] && !gone[t];
  }
  static void merge(Threads& threads, const Threads& more) {
    threads.resize(more.size());
    for (size_t t = 0; t < more.size(); ++t) threads[t] = threads[t] || more[t];
  }

  Threads where(const Expr& condition, const Threads& threads) const {
    const auto holds = values_.of(condition);
    if (!holds) return threads;
    Threads out(threads_);
    for (size_t t = 0; t < threads_; ++t) out[t] = threads[t] && (*holds)[t];
    return out;
  }

  // Trips that are like each other are counted once.
  void for_loop(const For& loop, const Threads& threads) {
    const auto begin = values_.of(loop.begin), end = values_.of(loop.end), step = values_.of(loop.step);
    if (!begin || !end || !step) return trip(loop, threads, 0, 1);
    std::vector<int64_t> trips(threads_);
    for (size_t t = 0; t < threads_; ++t)
      if (threads[t] && (*end)[t] > (*begin)[t]) trips[t] = divide_up((*end)[t] - (*begin)[t], (*step)[t]);
    const int64_t most = *std::max_element(trips.begin(), trips.end());
    const bool differ = std::any_of(trips.begin(), trips.end(), [&](int64_t each) { return each != most; });
    const std::vector<int64_t> counted =
        differ || varies(loop) ? spread(most) : std::vector<int64_t>(most > 0, 0);
    for (size_t i = 0; i < counted.size(); ++i) {
      const int64_t number = counted[i], next = i + 1 < counted.size() ? counted[i + 1] : most;
      Threads there(threads_);
      std::vector<int64_t> counter(threads_);
      for (size_t t = 0; t < threads_; ++t) {
        there[t] = threads[t] && number < trips[t];
        counter[t] = (*begin)[t] + number * (*step)[t];
      }
      const bool one = begin->is_one() && step->is_one();
      trip(loop, there, one ? ThreadNumbers(counter[0]) : ThreadNumbers(std::move(counter)),
           static_cast<double>(next - number));
    }
  }

  void trip(const For& loop, const Threads& threads, ThreadNumbers counter, double times) {
    values_.set(*loop.counter, std::move(counter));
    const double before = times_;
    times_ *= times;
    body(loop.body, threads);
    times_ = before;
  }

  // Those at both ends, where rings are filled and emptied, and some between, each of which stands for those
  // up to the next.
  static std::vector<int64_t> spread(int64_t trips) {
    std::set<int64_t> out;
    for (int64_t i = 0; i < std::min(trips, kTripsCounted); ++i) {
      out.insert(i);
      out.insert(trips - 1 - i);
      out.insert(trips * i / kTripsCounted);
    }
    return {out.begin(), out.end()};
  }

  bool varies(const For& loop) {
    const auto [at, unknown] = varies_.try_emplace(&loop);
    if (unknown) at->second = varies(loop.body, *loop.counter);
    return at->second;
  }
  // Whether the counter decides what a trip does.
  bool varies(const Body& body, const SymbolData& counter) const {
    return std::any_of(body.begin(), body.end(), [&](const Stmt& stmt) {
      bool found = false;
      if (const auto* branch = stmt.as<If>()) found = values_.depends(branch->condition, counter);
      if (const auto* loop = stmt.as<For>())
        found = values_.depends(loop->begin, counter) || values_.depends(loop->end, counter);
      if (const auto* instruction = stmt.as<Instruction>())
        if (const Expr* condition = operand_of(*instruction, 'p'))
          found = values_.depends(*condition, counter);
      const Body* inner = body_of(stmt);
      return found || (inner && varies(*inner, counter));
    });
  }

  double warps(const Threads& threads) const {
    double count = 0;
    for (size_t first = 0; first < threads_; first += kWarp) {
      const auto begin = threads.begin() + static_cast<std::ptrdiff_t>(first);
      count += std::find(begin, begin + kWarp, true) != begin + kWarp;
    }
    return count;
  }
  void count(double Counts::*what, double number) { out_.*what += times_ * number; }

  void access(Path path, const Expr& pointer, int64_t bytes, const Threads& threads) {
    AccessCount& count = out_.accesses[static_cast<size_t>(path)][bytes];
    const double active = warps(threads);
    count.accesses += times_ * static_cast<double>(std::count(threads.begin(), threads.end(), true));
    count.instructions += times_ * active;
    const bool global = path == Path::global_load || path == Path::global_store || path == Path::cp_async;
    count.moved += times_ * moved(pointer, bytes, threads, global);
  }

  // Sectors that the warps touch, or wavefronts: words in one bank come one after the other.
  double moved(const Expr& pointer, int64_t bytes, const Threads& threads, bool global) const {
    const auto at = values_.bytes_at(pointer);
    double sum = 0;
    for (size_t first = 0; first < threads_; first += kWarp) {
      std::set<int64_t> places;
      bool active = false;
      for (size_t t = first; t < first + kWarp; ++t) {
        if (!threads[t]) continue;
        active = true;
        const int64_t unit = global ? kSector : kWord, begin = at ? (*at)[t] : int64_t(t - first) * bytes;
        for (int64_t place = begin / unit; place <= (begin + bytes - 1) / unit; ++place) places.insert(place);
      }
      int64_t of_bank[kBanks] = {};
      for (int64_t place : places) ++of_bank[place & (kBanks - 1)];
      sum += global   ? static_cast<double>(places.size())
             : active ? static_cast<double>(*std::max_element(of_bank, of_bank + kBanks))
                      : 0;
    }
    return sum;
  }

  void store(const Assign& assign, const Threads& threads) {
    const Space space = root_of(*assign.place->symbol).space;
    if (space != Space::global && space != Space::shared) return;
    access(space == Space::global ? Path::global_store : Path::shared_store, assign.place,
           bytes_of(assign.place->symbol->type), threads);
  }

  void instruction(const Instruction& instruction, const Threads& threads) {
    const Expr* const condition = operand_of(instruction, 'p');
    for (const Expr& operand : instruction.operands)
      if (!pointer_of(operand)) expression(operand, threads);
    const Threads there = condition ? where(*condition, threads) : threads;
    const InstrInfo& row = instr_info(instruction.code);
    if (row.issues() && async_info(*row.async).proxy && row.level == Level::thread)
      return copy_by_tma(instruction, there);
    switch (instruction.code) {
      case Instr::load_shared: {
        const double before = times_;
        if (instruction.templates.size() > 2) times_ *= static_cast<double>(instruction.templates[2].number);
        accesses(instruction, there);
        times_ = before;
        return;
      }
      case Instr::ldmatrix:
      case Instr::ldmatrix_trans:
        return matrices(Path::ldmatrix, instruction.operands[1], instruction.templates[0].number, there);
      case Instr::stmatrix:
      case Instr::stmatrix_trans:
        return matrices(Path::shared_store, instruction.operands[0], instruction.templates[1].number / 2,
                        there);
      default:
        accesses(instruction, there);
        return order_or_compute(instruction, threads);
    }
  }

  // As its row says. Of a copy, where it is from.
  void accesses(const Instruction& instruction, const Threads& threads) {
    for (size_t i = 0; i < instruction.operands.size(); ++i) {
      const int64_t bytes = bytes_touched(instruction, i);
      const auto path =
          bytes > 0 ? path_of(role_of(instruction, i), instr_info(instruction.code).issues()) : std::nullopt;
      if (path) access(*path, instruction.operands[i], bytes, threads);
    }
  }
  static std::optional<Path> path_of(char role, bool copies) {
    switch (role) {
      case 'g':
        return copies ? Path::cp_async : Path::global_load;
      case 'G':
        return Path::global_store;
      case 's':
        return Path::shared_load;
      case 'S':
        return copies ? std::nullopt : std::optional(Path::shared_store);
      case 'c':
        return Path::cluster_load;
      default:
        return {};
    }
  }

  // What this block asks for, in however many it lands.
  void copy_by_tma(const Instruction& instruction, const Threads& threads) {
    const bool load = instr_info(instruction.code).has('S');
    const TensorMap* const map = map_of(kernel_, facts_, instruction);
    const auto copies = static_cast<double>(std::count(threads.begin(), threads.end(), true)),
               bytes = static_cast<double>(map ? map->box_bytes() : bytes_touched(instruction, 0));
    count(load ? &Counts::tma_loads : &Counts::tma_stores, copies);
    count(load ? &Counts::tma_load_bytes : &Counts::tma_store_bytes, copies * bytes);
  }

  // Eight lanes give the rows of a matrix, of 16 bytes each: a wavefront, if they lie in different banks.
  void matrices(Path path, const Expr& rows, int64_t matrices, const Threads& threads) {
    Threads lanes = threads;
    for (size_t t = 0; t < threads_; ++t) lanes[t] = threads[t] && int64_t(t % kWarp) < 8 * matrices;
    access(path, rows, 16, lanes);
  }

  void order_or_compute(const Instruction& instruction, const Threads& threads) {
    const auto number = [&](size_t i) { return static_cast<double>(instruction.templates[i].number); };
    switch (instruction.code) {
      case Instr::mma: {
        const double inner = bytes_of(instruction.templates[0].type) == 4 ? 8 : 16;
        count(&Counts::mma, warps(threads));
        return count(&Counts::mma_flops, warps(threads) * 2 * 16 * 8 * inner);
      }
      case Instr::wgmma:
      case Instr::wgmma_shared:
        count(&Counts::wgmma, warps(threads) / 4);
        return count(&Counts::wgmma_flops, warps(threads) / 4 * 2 * 64 * number(1) * 16);
      case Instr::exchange_words: {  // between pairs of lanes, then of pairs
        const int64_t words =
            bytes_of(instruction.templates[0].type) * instruction.templates[1].number / kWord;
        return count(&Counts::shuffles, warps(threads) * static_cast<double>(words / 2 * (words / 2)));
      }
      case Instr::round_to_tf32:
        return count(&Counts::simple, warps(threads));
      case Instr::block_barrier:
      case Instr::named_barrier:
        return count(&Counts::barriers, 1);
      case Instr::cluster_barrier:
      case Instr::cluster_wait:
        return count(&Counts::cluster_barriers, 1);
      case Instr::mbarrier_wait:
        return count(&Counts::mbarrier_waits, 1);
      default:
        return;
    }
  }

  // What it reads of memory, and the arithmetic that is not of indices.
  void expression(const Expr& expr, const Threads& threads) {
    const ExprNode& node = expr.node();
    if (node.kind == ExprKind::select) {
      expression(node.operands[0], threads);
      const Threads chosen = where(node.operands[0], threads);
      if (!is_empty(chosen)) expression(node.operands[1], chosen);
      expression(node.operands[2], threads);
    } else {
      for (const Expr& operand : node.operands) expression(operand, threads);
    }
    if (node.kind == ExprKind::element) read(expr, bytes_of(node.symbol->type), threads);
    if (node.kind == ExprKind::call) return called(node, threads);
    if (is_arithmetic(node)) count(&Counts::simple, warps(threads));
  }

  void read(const Expr& place, int64_t bytes, const Threads& threads) {
    const Space space = root_of(*place->symbol).space;
    if (space != Space::global && space != Space::shared) return;
    access(space == Space::global ? Path::global_load : Path::shared_load, place, bytes, threads);
  }

  // A product that is added to something is part of that instruction.
  static bool is_arithmetic(const ExprNode& node) {
    if (node.operands.empty() || is_index(node.operands.back().type())) return false;
    if (node.kind == ExprKind::select) return true;
    if (node.kind == ExprKind::cast) return !is_index(node.type);
    if (node.kind != ExprKind::operation || node.operands.back().type() == Scalar::boolean) return false;
    const bool sums = node.op == Operator::add || node.op == Operator::subtract;
    auto is_product = [](const Expr& each) {
      return each->kind == ExprKind::operation && each->op == Operator::multiply;
    };
    return !(sums && std::any_of(node.operands.begin(), node.operands.end(), is_product));
  }

  void called(const ExprNode& node, const Threads& threads) {
    if (node.function == Function::load_vector)
      return read(node.operands[0], bytes_of(node.templates[0].type) * node.templates[1].number, threads);
    const bool of_indices =
        is_index(node.type) && std::all_of(node.operands.begin(), node.operands.end(),
                                           [](const Expr& each) { return is_index(each.type()); });
    switch (function_info(node.function).cost) {
      case FunctionCost::free:
        return;
      case FunctionCost::simple:
        return of_indices ? void() : count(&Counts::simple, warps(threads));
      case FunctionCost::special:
        return count(&Counts::special, warps(threads));
      case FunctionCost::slow:
        return count(&Counts::slow, warps(threads));
      case FunctionCost::shuffle:
        return count(&Counts::shuffles, warps(threads));
    }
  }

  const Kernel& kernel_;
  const LaunchFacts& facts_;
  BlockValues values_;
  const size_t threads_;
  double times_ = 1;  // that what is being counted happens
  Threads returned_;
  std::map<const For*, bool> varies_;
  Counts out_;
};

constexpr double Counts::*kNumbers[] = {&Counts::tma_loads,     &Counts::tma_load_bytes,
                                        &Counts::tma_stores,    &Counts::tma_store_bytes,
                                        &Counts::mma,           &Counts::wgmma,
                                        &Counts::mma_flops,     &Counts::wgmma_flops,
                                        &Counts::simple,        &Counts::special,
                                        &Counts::slow,          &Counts::shuffles,
                                        &Counts::barriers,      &Counts::cluster_barriers,
                                        &Counts::mbarrier_waits};

}  // namespace

double Counts::bytes(Path path) const {
  double sum = 0;
  for (const auto& [width, count] : of(path)) sum += static_cast<double>(width) * count.accesses;
  return sum;
}
void Counts::add(const Counts& other, double times) {
  for (size_t path = 0; path < kPaths; ++path)
    for (const auto& [width, count] : other.accesses[path]) {
      AccessCount& own = accesses[path][width];
      own.accesses += times * count.accesses;
      own.instructions += times * count.instructions;
      own.moved += times * count.moved;
    }
  for (double Counts::*number : kNumbers) this->*number += times * other.*number;
}

Counts count_block(const Kernel& kernel, const LaunchFacts& facts, const std::array<int64_t, 3>& block) {
  int64_t rank = 0, blocks = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t extent = std::array{facts.cluster.x, facts.cluster.y, facts.cluster.z}[axis];
    rank += block[axis] % extent * blocks;
    blocks *= extent;
  }
  return BlockCounter(kernel, facts, {kernel.threads, block, rank}).run();
}

Counts count_mean_block(const Kernel& kernel, const LaunchFacts& facts) {
  std::vector<std::array<int64_t, 3>> blocks = {{}};
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t extent = std::array{facts.grid.x, facts.grid.y, facts.grid.z}[axis];
    std::vector<std::array<int64_t, 3>> next;
    for (int64_t at : std::set<int64_t>{0, extent / 2, extent - 1})
      for (std::array<int64_t, 3> block : blocks) {
        block[axis] = at;
        next.push_back(block);
      }
    blocks = std::move(next);
  }
  Counts mean;
  for (const auto& block : blocks)
    mean.add(count_block(kernel, facts, block), 1.0 / static_cast<double>(blocks.size()));
  return mean;
}

}  // namespace quern::ir
