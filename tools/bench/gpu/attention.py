"""What the attention in a graph is: softmax(changed scores of q @ k) @ v, found from its last product, with scale, masks, soft cap and what else
is done to the scores. Says what libraries ask for; needs no PyTorch."""

import math

ELEMENTWISE = {"neg", "abs", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf",
               "add", "sub", "mul", "div", "max", "min", "pow", "lt", "le", "eq", "where", "cast"}
VIEWS = {"reshape", "transpose", "broadcast"}
MASKED = -1e3  # scores below it are meant to be masked


def number(operand):
    try:
        return float(operand)
    except ValueError:
        return None


def axis_of(attributes, default):
    axis = attributes.get("axis", default)
    return int(axis[0] if isinstance(axis, list) else axis)


def broadcast(*shapes):
    rank = max(map(len, shapes), default=0)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [next((n for n in extents if n != 1), 1) for extents in zip(*padded)]


class Values:
    """What each value of a graph is made of, and its shape."""

    def __init__(self, graph):
        self.graph = graph
        self.made = {result: (op, operands, attributes) for result, op, operands, attributes in graph.ops}
        self.uses = [o for _, _, operands, _ in graph.ops for o in operands] + list(graph.outputs)
        self.dtypes = {name: dtype for name, dtype, *_ in graph.inputs}
        self.shapes = {name: list(shape) for name, _, shape, _ in graph.inputs}
        for result, op, operands, attributes in graph.ops:
            self.shapes[result] = self._shape(op, [self.shapes.get(o, []) for o in operands], attributes)

    def op(self, name):
        return self.made.get(name, (None,))[0]

    def operands(self, name):
        return self.made[name][1]

    def attributes(self, name):
        return self.made[name][2]

    def sources(self, name, through=None):
        """The inputs that a value is computed from; None if by an operator that is not in `through`."""
        if name in self.dtypes:
            return {name}
        if name not in self.made:
            return set()
        if through is not None and self.op(name) not in through:
            return None
        return self.sources_of(self.operands(name), through)

    def sources_of(self, names, through=None):
        parts = [self.sources(name, through) for name in names]
        return None if None in parts else set().union(*parts)

    def lengths(self):
        """{input: extent} of integers that end positions along an axis of so many."""
        compared = [operands for op, operands, _ in self.made.values() if op in ("lt", "le")]
        ends = [(end, at) for operands in compared for at, end in (operands, reversed(operands)) if self.op(at) == "iota" and self.dtypes.get(end) == "i32"]
        return {end: self.shapes[at][axis_of(self.attributes(at), 0)] for end, at in ends}

    @staticmethod
    def _shape(op, shapes, attributes):
        x = shapes[0] if shapes else []
        if op in ("reshape", "broadcast", "iota"):
            return list(attributes["shape"])
        if op == "transpose":
            return [x[int(p)] for p in attributes.get("perm", reversed(range(len(x))))]
        if op == "matmul":
            return broadcast(x[:-2], shapes[1][:-2]) + [x[-2], shapes[1][-1]]
        if op == "slice":
            ranges = [range(n)[slice(*(attributes[a][d] if a in attributes else None for a in ("start", "stop", "step")))] for d, n in enumerate(x)]
            return [len(r) for r in ranges]
        if op == "concat":
            axis = axis_of(attributes, 0) % len(x)
            return [sum(s[d] for s in shapes) if d == axis else n for d, n in enumerate(x)]
        if op in ("sum", "mean") or op in ("max", "min") and len(shapes) == 1:
            axes = attributes.get("axis", list(range(len(x))))
            axes = {int(a) % len(x) for a in (axes if isinstance(axes, list) else [axes])} if x else set()
            return [1 if d in axes else n for d, n in enumerate(x) if d not in axes or attributes.get("keepdims")]
        return broadcast(*shapes) if op in ELEMENTWISE else list(x)


class Positions:
    """Conditions over the positions of query and key as a range of query - key."""

    def __init__(self, values):
        self.values = values

    def affine(self, name):
        """(a, b, c) of a * query + b * key + c, or None."""
        if number(name) is not None:
            return 0, 0, number(name)
        op, operands, attributes = self.values.made.get(name, (None, [], {}))
        if op == "iota":
            return {-1: (0, 1, 0), -2: (1, 0, 0)}.get(axis_of(attributes, 0) - len(attributes["shape"]))
        if op == "cast" and attributes["dtype"] not in ("i32", "f32"):  # which hold positions exactly
            return None
        parts = [self.affine(o) for o in operands] if op in ("add", "sub", "mul", "neg", "cast") else [None]
        if None in parts:
            return None
        if op == "mul":
            plain = [p[2] for p in parts if not p[0] and not p[1]]
            other = parts[1] if not parts[0][0] and not parts[0][1] else parts[0]
            return tuple(plain[0] * x for x in other) if plain else None
        signs = {"add": (1, 1), "sub": (1, -1), "neg": (-1,), "cast": (1,)}[op]
        return tuple(sum(s * p[i] for s, p in zip(signs, parts)) for i in range(3))

    def band(self, condition):
        """(low, high) if it holds exactly where low <= query - key <= high, or None."""
        op, operands, _ = self.values.made.get(condition, (None, [], {}))
        if op in ("mul", "min"):
            return self.all_of([self.band(o) for o in operands])
        if op == "cast":
            return self.band(operands[0])
        if op not in ("le", "lt"):
            return None
        if self.values.op(operands[0]) == "abs":
            inner, bound = self.affine(self.values.operands(operands[0])[0]), self.affine(operands[1])
            if inner is None or bound is None:
                return None
            return self.all_of([self._range(bound, inner, sign, op == "lt") for sign in (1, -1)])
        left, right = (self.affine(o) for o in operands)
        return None if left is None or right is None else self._range(right, left, 1, op == "lt")

    @staticmethod
    def all_of(bands):
        return None if None in bands else (max((low for low, _ in bands), default=-math.inf), min((high for _, high in bands), default=math.inf))

    @staticmethod
    def _range(right, left, sign, strict):
        """Where right - sign * left >= 0, or > 0."""
        a, b, c = (r - sign * x for r, x in zip(right, left))
        if a != -b or a == 0:
            return None
        bound = -c / a
        if a > 0:
            return (math.floor(bound) + 1 if strict else math.ceil(bound)), math.inf
        return -math.inf, (math.ceil(bound) - 1 if strict else math.floor(bound))


class Attention:
    """One attention. q, k, v are expressions over values of the graph, with (row, dimension) last; heads of k and v may be fewer than those of q."""

    def __init__(self, values, result):
        self.values, self.result, self.masks, self.scale = values, result, [], 1.0
        numerators, v = values.operands(result)
        softmax = values.operands(numerators)[0] if values.op(numerators) == "cast" else numerators
        top = self._unmasked(values.operands(softmax)[0])
        path = self._path(top)
        self.top, self.base = top, path.pop()
        self.q, kt = values.operands(self.base)
        while path and self._factor(path[-1]) is not None:
            self.base = path.pop()
            self.scale *= self._factor(self.base)
        while self.q in values.made and self._factor(self.q) is not None:
            self.scale *= self._factor(self.q)
            self.q = next(o for o in values.operands(self.q) if number(o) is None)
        self.changes = path  # of the scaled scores, the last one first
        self.k, self.k_shape = self._keys(kt)
        self.v, self.v_shape = self._distinct_heads(v) or (v, values.shapes[v])
        self.q_shape, self.keys = values.shapes[self.q], {kt} & set(values.dtypes)

    # scores

    def _unmasked(self, scores):
        """The scores behind masks; the conditions are kept."""
        while True:
            op, operands, _ = self.values.made[scores]
            if op == "where" and self._masks(operands[2]):
                self.masks.append(operands[0])
                scores = operands[1]
            elif op == "add" and any(map(self._hidden_by, operands)):
                hidden = [self._hidden_by(o) for o in operands]
                self.masks += [condition for condition in hidden if condition]
                scores = operands[hidden.index(None)]  # ValueError: no scores are left
            elif self._keeps(scores):
                scores = operands[0]
            else:
                return scores

    def _factor(self, name):
        """The number that `name` is its other operand times, or None."""
        op, operands, _ = self.values.made[name]
        factors = [number(o) for o in operands if number(o) is not None]
        if op == "mul" and factors:
            return factors[0]
        return 1 / factors[0] if op == "div" and factors and number(operands[1]) else None

    @staticmethod
    def _masks(operand):
        return number(operand) is not None and number(operand) < MASKED

    def _hidden_by(self, name):
        """The condition of what is 0 where it holds and masks elsewhere, or None."""
        name = self.values.operands(name)[0] if self.values.op(name) == "cast" else name
        op, operands, _ = self.values.made.get(name, (None, [], {}))
        return operands[0] if op == "where" and number(operands[1]) == 0 and self._masks(operands[2]) else None

    def _keeps(self, name):
        """A cast of scores to f32, which libraries have them in."""
        return self.values.op(name) == "cast" and self.values.attributes(name)["dtype"] == "f32"

    def _reaches_product(self, name):
        op = self.values.op(name)
        return op == "matmul" or op in ELEMENTWISE and any(self._reaches_product(o) for o in self.values.operands(name))

    def _path(self, name):
        """Values from `name` down to the product of queries and keys."""
        path = [name]
        while self.values.op(name) != "matmul":
            name, = [o for o in self.values.operands(name) if self._reaches_product(o)]  # ValueError: not one chain
            path.append(name)
        return [name for name in path if not self._keeps(name)]

    @property
    def addend(self):
        """What is added to the scaled scores, if that is all that changes them."""
        if len(self.changes) == 1 and self.values.op(self.changes[0]) == "add":
            return next(o for o in self.values.operands(self.changes[0]) if not self._reaches_product(o))
        return None

    @property
    def soft_cap(self):
        """cap of cap * tanh(scores): libraries take it with scores times `scale` * cap."""
        if [self.values.op(c) for c in self.changes] == ["mul", "tanh"]:
            return next((number(o) for o in self.values.operands(self.changes[0]) if number(o) is not None), None)
        return None

    # operands

    def _distinct_heads(self, name):
        """What reshape(broadcast(reshape(x))) repeats for each query of a group, and its shape."""
        chain = [name]
        for op in ("reshape", "broadcast", "reshape"):
            if self.values.op(chain[-1]) != op:
                return None
            chain.append(self.values.operands(chain[-1])[0])
        last, wide, narrow, x = (self.values.shapes[n] for n in chain)
        groups = wide[-3] if len(wide) > 3 else 0
        repeated = narrow == x[:-2] + [1] + x[-2:] and wide == x[:-2] + [groups] + x[-2:] and last == x[:-3] + [x[-3] * groups] + x[-2:]
        return (chain[-1], x) if repeated else None

    def _keys(self, kt):
        rank = len(self.values.shapes[kt])
        if self.values.op(kt) == "transpose" and self.values.attributes(kt).get("perm") == [*range(rank - 2), rank - 1, rank - 2]:
            found = self._distinct_heads(self.values.operands(kt)[0])
            if found:
                return found
        shape = self.values.shapes[kt]
        return f"{kt}.transpose(-1, -2)", shape[:-2] + [shape[-1], shape[-2]]

    # what libraries ask for

    @property
    def window(self):
        """(left, right): query i sees keys from i + keys - queries - left to i + keys - queries + right, None where there is no bound; or None,
        if the masks are something else."""
        band = Positions.all_of([Positions(self.values).band(c) for c in self.masks])
        if band is None:
            return None
        queries, keys = self.q_shape[-2], self.k_shape[-2]
        offset = keys - queries
        left, right = band[1] + offset, -band[0] - offset
        return None if left >= keys - 1 else left, None if right >= queries - 1 else right

    @property
    def dtype(self):
        return {self.values.dtypes[name] for name in self.values.sources(self.q)}.pop()

    @property
    def positional(self):
        """Positions alone decide what is masked."""
        return all(self.values.sources(c, ELEMENTWISE | {"iota"}) == set() for c in self.masks)

    @property
    def heads(self):
        """(batch, heads, heads of k and v), or None if they are not in groups that follow each other."""
        leads = [shape[:-2] for shape in (self.q_shape, self.k_shape, self.v_shape)]
        rank = max(2, *map(len, leads))
        q, k, v = ([1] * (rank - len(lead)) + lead for lead in leads)
        if rank > 2 or k != v or k[:-1] != q[:-1] or q[-1] % k[-1]:
            return None
        return math.prod(q[:-1]), q[-1], k[-1]

    @property
    def grouped(self):
        """Heads of k and v are fewer than those of q in the last dimension in front of rows."""
        q, k = ([1, *shape][-3] for shape in (self.q_shape, self.k_shape))
        return q != k

    @property
    def decode_rows(self):
        """Rows that read the same keys, if they are few and nothing tells them apart; 0 otherwise."""
        if self.heads is None or self.window != (None, None) or self.changes:
            return 0
        rows = self.q_shape[-2] * self.heads[1] // self.heads[2]
        return rows if rows <= 128 and self.k_shape[-2] >= 8 * rows else 0

    @property
    def whole(self):
        """Nothing but views stands in front of it and behind it."""
        views = all(self.values.sources(name.split(".")[0], VIEWS) is not None for name in (self.q, self.k, self.v))
        outputs = self.values.graph.outputs
        name = outputs[0]
        while self.values.op(name) in VIEWS:
            name = self.values.operands(name)[0]
        return views and len(outputs) == 1 and name == self.result and self.heads is not None


def attentions(graph):
    """{result: Attention} of each product behind a softmax over the products of two others."""
    values, found = Values(graph), {}
    for result, op, operands, _ in graph.ops:
        numerators = operands[0] if op == "matmul" else None
        softmax = values.operands(numerators)[0] if values.op(numerators) == "cast" else numerators
        if values.op(softmax) != "softmax" or axis_of(values.attributes(softmax), -1) not in (-1, len(values.shapes[softmax]) - 1):
            continue
        try:
            if values.uses.count(numerators) == values.uses.count(softmax) == 1:
                found[result] = Attention(values, result)
        except (ValueError, KeyError):  # scores that are no product's
            continue
    return found
