// The compiled kernel of sharmix/csrc, with arrays of numbers in place of addresses. All of the page's mathematics is there.

class Kernel {
    static async load(base64) {
        const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
        const { instance } = await WebAssembly.instantiate(bytes, {});
        instance.exports._initialize();
        return new Kernel(instance.exports);
    }

    constructor(compiled) {
        this.compiled = compiled;
        this.rooms = new Map();
    }

    // p of each row of logits; `logits` holds one row after another.
    map(logits, q, r, temperature = 1, classes = logits.length) {
        const p = this.room("p", logits.length);
        this.compiled.map(this.put("z", logits), p, logits.length / classes, classes, q, r, temperature);
        return this.read(p, logits.length);
    }

    // The Fenchel-Young loss of a class, and its gradient p - y.
    loss(logits, label, q, r, temperature = 1) {
        const gradient = this.room("gradient", logits.length);
        const loss = this.compiled.loss(this.put("z", logits), gradient, logits.length, label, q, r, temperature);
        return { loss, gradient: this.read(gradient, logits.length) };
    }

    alphaReluLoss(logits, label, tau) {
        const gradient = this.room("gradient", logits.length);
        const loss = this.compiled.alpha_relu_loss(this.put("z", logits), gradient, logits.length, label, tau);
        return { loss, gradient: this.read(gradient, logits.length) };
    }

    // The derivatives of a class's probability by each logit, and by q, r and the temperature.
    jacobianRow(logits, label, q, r, temperature = 1) {
        const p = this.map(logits, q, r, temperature), classes = p.length;
        const along = p.map((_, index) => Number(index === label));
        const byLogits = this.room("by logits", classes), byOrders = this.room("by orders", 3);
        this.compiled.pull_back(this.put("p", p), this.put("along", along), byLogits, byOrders, classes, q, r, temperature);
        return { logits: this.read(byLogits, classes), orders: this.read(byOrders, 3) };
    }

    // The number of classes that keep a probability, at each pair of orders.
    survivors(logits, qs, rs, temperature = 1) {
        const sizes = this.room("sizes", Math.ceil(qs.length / 4));
        this.compiled.survivors(this.put("z", logits), logits.length, this.put("q", qs), this.put("r", rs), temperature, qs.length, sizes);
        return new Uint16Array(this.compiled.memory.buffer, sizes, qs.length).slice();
    }

    // Members of the solution family, from the most peaked to the flattest: [y, largest p, objective] of each.
    family(logits, q, r, temperature, count) {
        const members = this.room("members", 3 * count);
        this.compiled.family(this.put("z", logits), logits.length, q, r, temperature, count, members);
        return triples(this.read(members, 3 * count));
    }

    // The members at which the objective has a local maximum, and p of each.
    maxima(logits, q, r, temperature = 1, most = 8) {
        const members = this.room("members", 3 * most), z = this.put("z", logits), p = this.room("p", logits.length);
        const count = this.compiled.maxima(z, logits.length, q, r, temperature, most, members);
        return triples(this.read(members, 3 * count)).map(([y, largest, objective]) => {
            this.compiled.member(z, p, logits.length, q, r, temperature, y);
            return { largest, objective, p: this.read(p, logits.length) };
        });
    }

    // The temperature above which a class is in the support.
    entryTemperature(logits, label, q, r) {
        return this.compiled.entry_temperature(this.put("z", logits), logits.length, label, q, r);
    }

    // The address of memory for so many numbers.
    room(name, count) {
        const known = this.rooms.get(name);
        if (known && known.count >= count) return known.address;
        const address = this.compiled.allocate(count);
        this.rooms.set(name, { address, count });
        return address;
    }

    put(name, numbers) {
        const address = this.room(name, numbers.length);
        this.at(address, numbers.length).set(numbers);
        return address;
    }

    read(address, count) {
        return Array.from(this.at(address, count));
    }

    at(address, count) {
        return new Float64Array(this.compiled.memory.buffer, address, count);
    }
}

function triples(numbers) {
    return Array.from({ length: numbers.length / 3 }, (_, index) => numbers.slice(3 * index, 3 * index + 3));
}
