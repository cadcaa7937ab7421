// What the page shows, as Python that computes the same.

function asPython({ q, r, temperature, logits, chosen }) {
    const orders = `q=${q}, r=${r}, temperature=${temperature}`;
    return `import torch
import sharmix

z = torch.tensor([${logits.join(", ")}], dtype=torch.float64)
p = sharmix.sharmix(z, ${orders})
loss = sharmix.fenchel_young_loss(z[None], torch.tensor([${chosen}]), ${orders})
print(p.tolist(), loss.item())
`;
}

function addPython() {
    const code = document.querySelector("#python pre"), copied = document.getElementById("copied");
    const copies = { copy: ["The code is copied.", () => asPython(state)], link: ["The link is copied.", () => location.href] };
    for (const [name, [said, text]] of Object.entries(copies)) {
        document.getElementById(name).addEventListener("click", async () => {
            if (isMoving) record(); // the address follows the state a little later
            try {
                await navigator.clipboard.writeText(text());
                say(copied, said);
            } catch {
                say(copied, "This browser allows no copying; select the text instead.");
            }
        });
    }
    panels.push({
        place: document.getElementById("python"),
        inputs: ["q", "r", "temperature", "logits", "chosen"],
        draw: (view) => {
            say(code, asPython(view));
            say(copied, "");
        },
    });
}
