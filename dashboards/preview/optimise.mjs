// Makes a PNG small: 256 colours or fewer. node optimise.mjs FROM TO
import { createRequire } from 'node:module';

const [from, to] = process.argv.slice(2);
const sharp = createRequire(`${process.env.NODE_PATH}/`)('sharp');
await sharp(from).png({ palette: true, quality: 90, effort: 10, compressionLevel: 9 }).toFile(to);
