// The loss of the chosen class with its gradient, and the row of the Jacobian that belongs to it.

function addLoss() {
    const panel = document.getElementById("loss"), output = panel.querySelector("output"), bars = panel.querySelector(".signed");
    panels.push({
        place: panel,
        inputs: ["logits", "q", "r", "temperature", "chosen"],
        draw: ({ logits, q, r, temperature, chosen }) => {
            const { loss, gradient } = kernel.loss(logits, chosen, q, r, temperature);
            say(output, loss.toFixed(4));
            drawSigned(bars, gradient, chosen, 1);
        },
    });
}

function addJacobian() {
    const panel = document.getElementById("jacobian"), bars = panel.querySelector(".signed");
    const numbers = ["by q", "by r", "by temperature"].map((name) => {
        const number = element("dd");
        panel.querySelector("dl").append(element("div", {}, element("dt", {}, name), number));
        return number;
    });
    panels.push({
        place: panel,
        inputs: ["logits", "q", "r", "temperature", "chosen"],
        draw: ({ logits, q, r, temperature, chosen }) => {
            const row = kernel.jacobianRow(logits, chosen, q, r, temperature);
            row.orders.forEach((value, index) => { say(numbers[index], signed(value, 3)); });
            drawSigned(bars, row.logits, chosen, Math.max(0.25, ...row.logits.map(Math.abs)));
        },
    });
}
